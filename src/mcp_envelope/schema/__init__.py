"""What a JSON Schema lets us cut, whether a result still conforms, and how to make room for the envelope.

Strategy: a document is read once into a graph of its subschemas, and a place is what they say about one spot in
a payload. Imports point one way: validation → places → widening → validator → document.
"""

from ..jsontext.document import Kind
from .document import SchemaError
from .places import FREE, Place
from .validation import Schema
from .widening import ENVELOPE_KEY, Widened, widen

__all__ = ["ENVELOPE_KEY", "FREE", "Kind", "Place", "Schema", "SchemaError", "Widened", "widen"]

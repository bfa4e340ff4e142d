"""What a JSON Schema lets us cut, whether a result still conforms, and how to make room for the envelope.

Strategy: a document is read once into a graph of its subschemas; a place is what they say of one spot in a
payload. Imports point one way: check → effort, place → graph, validator → document; and beside `check`,
widening → wrapping, validator → references → document.
"""

from ..jsontree import Kind
from .check import Schema
from .document import SchemaError
from .place import FREE, Place
from .widening import Widened, widen
from .wrapping import ENVELOPE_KEY

__all__ = ["ENVELOPE_KEY", "FREE", "Kind", "Place", "Schema", "SchemaError", "Widened", "widen"]

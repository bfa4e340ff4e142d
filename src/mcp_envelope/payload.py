"""What a tool returned, in the two forms that the rest of the house works with.

Strategy: everything becomes a JSON document or a list of content blocks, as bytes, once. Python values are
encoded by msgspec (pydantic models by themselves); a small dictionary is encoded member by member, which
costs the same and saves taking it apart again. Bytes are taken as JSON, a string as text, a list as content
blocks only if each of its items is one beyond doubt.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec

from .faults import JSONError
from .jsontree import Buffer, Node, TooDeep, encode, from_members, kind_of, parse, sniff
from .page import Page
from .spelling import respelled
from .text import unescaped

As = Literal["auto", "json", "text", "blocks"]

_SAMPLE: Final = 1 << 14
_FEW_MEMBERS: Final = 64
_WORTH_COMPARING: Final = 1 << 23
# Most members of a dictionary: there is no number in them that could be spelled in two ways.
_NO_FLOATS: Final = frozenset({str, int, bool, type(None)})

# The fields that make a dictionary a content block of that type.
_BLOCK_FIELDS: Final[dict[str, dict[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": Mapping},
}


class PayloadError(ValueError):
    """The payload cannot be put on the wire. Says what is wrong and what would work."""


class Payload(msgspec.Struct, frozen=True, gc=False):
    """Either a document (`node`), or content blocks, each as its JSON bytes, or plain text.

    A whole result may have both: blocks, and a document that says something else or more.

    `source` is the document's own spelling, if it came as bytes. A `page` of a stored payload stands alone."""

    node: Node | None = None
    blocks: tuple[Buffer, ...] | None = None
    text: bytes | None = None
    source: bytes | None = None
    page: Page | None = None
    # Only the beginning of the document is here; the rest was stored while it came in.
    partial: bool = False

    def as_node(self) -> Node:
        """The payload as one JSON value, for a dialect that puts it into a member of its own."""
        if self.node is not None:
            return self.node
        if self.text is not None:
            return Node(encode(self.text.decode()))
        return Node(b"null") if self.blocks is None else Node(b"[%b]" % b",".join(self.blocks))

    @property
    def is_empty(self) -> bool:
        return self.node is None and self.blocks is None and self.text is None and self.page is None

    def original(self) -> bytes:
        """The document as it came, its whitespace included."""
        assert self.node is not None
        return bytes(self.node.raw) if self.source is None else self.source

    def sample(self) -> bytes:
        """Some of it, to judge the whole by; whole characters only."""
        if self.node is not None:
            head = bytes(memoryview(self.node.raw)[:_SAMPLE])
        else:
            first = [self.text] if self.text is not None else self.blocks or ()
            head = b"".join([bytes(memoryview(part)[:_SAMPLE]) for part in first[:_SAMPLE]])[:_SAMPLE]
        return head.decode("utf-8", "ignore").encode()

    @property
    def size(self) -> int:
        """Bytes, before any cut."""
        if self.page is not None:
            return self.page.size
        blocks = sum(map(len, self.blocks or ()))
        if self.node is not None:
            return self.node.size + blocks
        return len(self.text) if self.text is not None else blocks


def read_result(content: Sequence[Buffer], structured: Buffer | None) -> Payload:
    """The two lanes of a result. Text that only repeats the structure is not kept besides it."""
    if structured is None:
        return Payload(blocks=tuple(content))
    source = bytes(structured)
    node = parse(source)
    if _repeats(content, node):
        return Payload(node=node, source=source)
    return Payload(node=node, source=source, blocks=tuple(content))


class _TextBlock(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: msgspec.Raw


def _repeats(content: Sequence[Buffer], node: Node) -> bool:
    """Whether the content only says the structure again: as one text, its `result`, or a text for each item."""
    if not content:
        return True
    if sum(map(len, content)) < node.size // 2:
        return False
    try:
        texts = [unescaped(msgspec.json.decode(block, type=_TextBlock).text) for block in content]
        members = node.members() if node.kind == "object" else []
        values = [node] if len(members) != 1 else [node, node.child(0)]
        if len(texts) == 1:
            # A text that is no JSON should stay a text, also where the structure has it as a string.
            return any(_says(texts[0], value.raw, bare=False) for value in values)
        lists = [value for value in values if value.kind == "array" and value.total() == len(texts)]
        return any(all(map(_says, texts, value.all_items())) for value in lists)
    except (msgspec.MsgspecError, TooDeep, RecursionError, UnicodeError, ValueError):
        return False


def _says(written: bytes, raw: Buffer, bare: bool = True) -> bool:
    """Whether a text is how a value is written; `bare` tells that a string needs no quotes for it."""
    root = sniff(written)
    if (written if root is None else root.raw) == raw:
        return True
    del root
    if bare and kind_of(raw) == "string" and unescaped(raw) == written:
        return True
    if len(raw) > _WORTH_COMPARING:
        # As Python's objects it would take many times the memory; kept twice, it takes twice.
        return False
    try:
        value = msgspec.json.decode(raw)
        # The same may be spelled in another way: 1.0 and 1, or escapes.
        return bool(msgspec.json.decode(written) == value)
    except msgspec.DecodeError:
        return False


def read_payload(value: Any, read_as: As = "auto") -> Payload:
    if isinstance(value, Payload):
        return value
    if isinstance(value, Page):
        return Payload(page=value)
    if read_as == "text" or (read_as == "auto" and isinstance(value, str)):
        return Payload(text=_text(value))
    if read_as == "blocks" or (read_as == "auto" and _is_content(value)):
        return Payload(blocks=tuple(_block(block) for block in _each(value)))
    if isinstance(value, bytes | bytearray | memoryview | msgspec.Raw):
        source = bytes(value).removeprefix(codecs.BOM_UTF8)
        return Payload(node=parse(source), source=source)
    if isinstance(value, str):
        source = _text(value).removeprefix(codecs.BOM_UTF8)
        return Payload(node=parse(source), source=source)
    return Payload(node=_document(value))


def _document(value: Any) -> Node:
    if type(value) is dict and len(value) <= _FEW_MEMBERS and all(type(key) is str for key in value):
        return from_members({key: _member(member) for key, member in value.items()})
    return parse(to_json(value))


def _member(value: Any) -> bytes:
    return to_json(checked(bytes(value)) if isinstance(value, msgspec.Raw) else value)


def checked(raw: bytes) -> msgspec.Raw:
    """JSON that somebody else wrote, known to be JSON."""
    parse(raw)
    return msgspec.Raw(raw)


def to_json(value: Any) -> bytes:
    """A Python value as JSON; PayloadError names what cannot be one."""
    try:
        raw = _ENCODER.encode(value)
        return raw if type(value) in _NO_FLOATS else respelled(raw)
    except RecursionError:
        raise PayloadError("the payload contains itself or is nested too deeply to be sent") from None
    except JSONError:
        raise
    except UnicodeEncodeError as error:
        raise PayloadError(
            f"the payload holds a lone surrogate (half a character) at position {error.start} of a text; "
            "replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise PayloadError(f"the payload cannot be written as JSON: {error}") from None
    except Exception as error:
        # Properties and generators are the author's code, and anything may come out of it.
        raise PayloadError(
            f"the payload cannot be read: {type(error).__name__} while it was written"
        ) from error


def _foreign(value: Any) -> Any:
    """Types that msgspec does not know: by what they can do, so that none of their libraries is imported."""
    if hasattr(value, "model_dump_json"):
        return checked(value.model_dump_json(by_alias=True).encode())
    plain: type[Any]
    for plain in (str, bytes, int, float):
        # A subclass says more than JSON can; what it is at heart stays.
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "to_wire"):
        return value.to_wire()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, tuple | frozenset):
        # msgspec writes these itself, so it asks for one that stands where a key should be.
        raise TypeError(f"a key must be a text or a number, not a {type(value).__name__}")
    if isinstance(value, range | Sequence) or hasattr(value, "__next__"):
        return list(value)
    raise TypeError(
        f"{type(value).__qualname__} has no JSON form; "
        "return a dict, list, dataclass, pydantic or attrs model"
    )


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_foreign)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise JSONError("invalid UTF-8", value, error.start) from None
        return bytes(value)
    try:
        return str(value).encode()
    except UnicodeEncodeError as error:
        raise PayloadError(
            f"the text holds a lone surrogate (half a character) at position {error.start}; "
            "replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None


def _is_content(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(_is_block(item) for item in value)


def _is_block(item: Any) -> bool:
    try:
        if isinstance(item, Mapping):
            kind = item.get("type")
            fields = _BLOCK_FIELDS.get(kind) if isinstance(kind, str) else None
            return fields is not None and all(isinstance(item.get(field), of) for field, of in fields.items())
        kind = getattr(item, "type", None)
        return isinstance(kind, str) and kind in _BLOCK_FIELDS and hasattr(item, "model_dump_json")
    except Exception:
        # Whatever raises when it is looked at is no block.
        return False


def _each(value: Any) -> Sequence[Any]:
    if isinstance(value, bytes | bytearray | memoryview | str):
        node = parse(value.encode() if isinstance(value, str) else bytes(value))
        if node.kind == "array":
            return node.all_items()
    elif isinstance(value, list | tuple):
        return value
    raise PayloadError("content blocks come as a list of objects with a `type`")


def _block(block: Any) -> Buffer:
    if isinstance(block, bytes | msgspec.Raw):
        node = parse(bytes(block))
        if node.kind != "object":
            raise PayloadError(f"a content block is an object with a `type`, not of the kind {node.kind}")
        return node.raw
    if hasattr(block, "model_dump_json"):
        # The wire form has no nulls for what is absent.
        return bytes(block.model_dump_json(by_alias=True, exclude_none=True), "utf-8")
    return to_json(block)

"""What a tool returned, in the form that the rest of the package works with.

Strategy: every value becomes a JSON document, a list of content blocks or plain text, as bytes, once. Python
values are encoded by msgspec (pydantic models encode themselves); a small dictionary is encoded member by
member, which costs the same and saves parsing it again. Bytes are read as JSON, a string as text, and a list as
content blocks only if every item clearly is one.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import string
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec

from .fit.images import ImageBudget, may_be_file, set_aside
from .fit.pages import Page
from .jsontext.document import (
    Buffer,
    Node,
    TooDeep,
    compact,
    encode,
    from_members,
    kind_of,
    parse,
    readable,
    respelled,
    sniff,
    text_block,
    unescaped,
)
from .jsontext.errors import JSONError, check_utf8

As = Literal["auto", "json", "text", "blocks"]

_SAMPLE: Final = 1 << 14
# How most blocks begin. They hold no file, and needn't be looked at any closer.
_IS_TEXT: Final = re.compile(rb'\{\s*"type"\s*:\s*"text"')
_FEW_MEMBERS: Final = 64
# A dictionary of members with no more than this is written as a whole.
_FEW_ITEMS: Final = 16
_LONG_TEXT: Final = 4096
# How many times longer the same JSON may be, spelled with escapes and white space.
_SPACED: Final = 8
_WORTH_COMPARING: Final = 1 << 23
_SCALARS: Final = frozenset({str, int, bool, float, type(None)})
_STRINGS: Final = frozenset({str})

# The fields that make a dictionary a content block of that type.
_BLOCK_FIELDS: Final[dict[str, dict[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": Mapping},
}


# What handles are made of.
_ALPHABET: Final = string.ascii_letters + string.digits
_LETTERS: Final = 22


class PayloadError(ValueError):
    """The payload can't be sent. The message says what is wrong and what would work."""


class Payload(msgspec.Struct, frozen=True, gc=False):
    """A document (`node`), content blocks, each as its JSON bytes, or plain text.

    A whole result may have both blocks and a document, if they differ in content. `source` is the document's
    original spelling, if it came as bytes. A `page` of a stored payload comes alone.
    """

    node: Node | None = None
    blocks: tuple[Buffer, ...] | None = None
    text: bytes | None = None
    source: Buffer | None = None
    page: Page | None = None
    # Whether only the beginning of the document is here, and the rest was stored as it came in.
    partial: bool = False

    def as_node(self) -> Node:
        """Return the payload as one JSON value, for dialects that put it into a member."""
        if self.node is not None:
            return self.node
        if self.text is not None:
            return Node(encode(self.text.decode()))
        return Node(b"null") if self.blocks is None else Node(compact(b"[%b]" % b",".join(self.blocks)))

    def beside(self, texts: Sequence[str]) -> Payload:
        """Return the payload with further texts, as one result with `content` and `structuredContent`."""
        if not texts:
            return self
        blocks = (*(self.blocks or ()), *map(text_block, texts))
        has_data = self.node is not None or self.text is not None
        return Payload(node=self.as_node() if has_data else None, blocks=blocks, source=self.source)

    @property
    def is_empty(self) -> bool:
        return self.node is None and self.blocks is None and self.text is None and self.page is None

    def original(self) -> bytes:
        """Return the document as it came, including its whitespace."""
        assert self.node is not None
        return self.node.spelled(self.node.raw) if self.source is None else bytes(self.source)

    def spelled(self) -> Payload:
        """Return the payload with its numbers spelled the way they will be sent, wherever they are put."""
        if self.node is None or not self.node.is_own:
            return self
        return msgspec.structs.replace(self, node=Node(self.original()))

    def sample(self) -> bytes:
        """Return a part, in whole characters, that represents the whole."""
        if self.node is not None:
            head = bytes(memoryview(self.node.raw)[:_SAMPLE])
        else:
            first = [self.text] if self.text is not None else self.blocks or ()
            head = b"".join([bytes(memoryview(part)[:_SAMPLE]) for part in first[:_SAMPLE]])[:_SAMPLE]
        return head.decode("utf-8", "ignore").encode()

    @property
    def size(self) -> int:
        """The size in bytes, before any cut."""
        if self.page is not None:
            return self.page.size
        blocks = sum(map(len, self.blocks or ()))
        if self.node is not None:
            return self.node.size + blocks
        return len(self.text) if self.text is not None else blocks


def new_handle() -> str:
    """Return 130 random bits as letters and digits, which need no quotes and can't look like an option."""
    number = int.from_bytes(os.urandom(24), "big")
    letters: list[str] = []
    for _ in range(_LETTERS):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)


class Result(msgspec.Struct, frozen=True, gc=False):
    """A tool's result in its wire form: the JSON of each content block, of `structuredContent` and of `_meta`.

    If `opaque`, it isn't a result as the protocol defines it, and `content` holds all of it as one item.
    """

    content: Sequence[Buffer]
    structured: Buffer | None = None
    is_error: bool = False
    opaque: bool = False
    meta: Buffer | None = None

    @property
    def size(self) -> int:
        """The bytes of the larger lane."""
        return max(sum(map(len, self.content)) + len(self.content) + 1, len(self.structured or b""))

    @property
    def has_files(self) -> bool:
        return any(may_be_file(block) for block in self.content if not _IS_TEXT.match(block))

    def lanes(self) -> tuple[bytes, ...]:
        """Return the texts that are measured: what clients show their models."""
        text = shown(self.content)
        return (text,) if self.structured is None else (text, readable(bytes(self.structured)))

    def without_files(self, budget: ImageBudget) -> tuple[Result, bool]:
        """Return the result as it is measured, without the data of images, and whether those may stay."""
        blocks, stay = set_aside(self.content, budget, self.structured is not None)
        return msgspec.structs.replace(self, content=blocks), stay

    def as_utf8(self) -> Result:
        """Return the result with invalid UTF-8 replaced, since clients couldn't decode it."""
        parts = [*self.content, *([] if self.structured is None else [self.structured])]
        if all(map(_is_utf8, parts)):
            return self
        fixed = [bytes(part).decode("utf-8", "replace").encode() for part in parts]
        structured = None if self.structured is None else fixed.pop()
        return Result(fixed, structured, self.is_error, self.opaque)


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: msgspec.Raw


def shown(blocks: Sequence[Buffer]) -> bytes:
    """Return blocks as clients show them to a model: texts without their escapes, anything else as JSON.

    What stands between two blocks differs; no client was seen to need more than an empty line.
    """
    return b"\n\n".join([_shown(block) for block in blocks])


def _shown(block: Buffer) -> bytes:
    try:
        return unescaped(msgspec.json.decode(block, type=_Text).text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return bytes(block)


def _is_utf8(raw: Buffer) -> bool:
    text = bytes(raw)
    if text.isascii():
        return True
    try:
        check_utf8(text)
    except JSONError:
        return False
    return True


def read_result(content: Sequence[Buffer], structured: Buffer | None) -> Payload:
    """Return the payload of a result's two lanes. Content that only repeats the structure is dropped."""
    if structured is None:
        return Payload(blocks=tuple(content))
    copied = bytes(structured)
    node = parse(copied)
    # Where the node has a compact spelling of its own, the original stays a part of the frame.
    source = copied if node.raw is copied else structured
    del copied
    if _repeats(content, node):
        return Payload(node=node, source=source)
    return Payload(node=node, source=source, blocks=tuple(content))


def as_document(payload: Payload) -> Payload:
    """Return the payload for a dialect that puts it into a frame.

    JSON that came as text is a document there, several texts of JSON are a list, and a plain text is a string.
    Text that only repeats the structure, or a member of it, is dropped. A result with nothing in it is null.
    """
    if payload.text is not None:
        node = sniff(payload.text)
        return payload if node is None else Payload(node=node, source=payload.text)
    if payload.blocks == () and payload.node is None:
        return Payload()
    if not payload.blocks:
        return payload
    found = [(block, _plain_text(block)) for block in payload.blocks]
    texts = [text for _, text in found if text is not None]
    others = tuple([block for block, text in found if text is None]) or None
    if not texts:
        return payload
    if payload.node is not None:
        if len(texts) == 1 and _is_member(texts[0], payload.node):
            return msgspec.structs.replace(payload, blocks=others)
        repeats = _repeats([block for block, text in found if text is not None], payload.node)
        return msgspec.structs.replace(payload, blocks=others) if repeats else payload
    nodes = [node for node in map(sniff, texts) if node is not None]
    if len(nodes) < len(texts):
        return Payload(text=texts[0]) if len(found) == 1 else payload
    if len(nodes) == 1:
        return Payload(node=nodes[0], source=texts[0], blocks=others)
    return Payload(node=Node(b"[%b]" % b",".join([node.raw for node in nodes])), blocks=others)


def apart(payload: Payload) -> tuple[list[str], Payload]:
    """Return the texts beside a structure, and the payload without them."""
    found = [(block, _plain_text(block)) for block in payload.blocks or ()]
    others = tuple([block for block, text in found if text is None]) or None
    texts = [text.decode() for _, text in found if text is not None]
    return texts, msgspec.structs.replace(payload, blocks=others) if texts else payload


class _TextBlock(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: msgspec.Raw


def _plain_text(block: Buffer) -> bytes | None:
    """Return the text of a text block that has nothing else; None for any other block."""
    try:
        return unescaped(msgspec.json.decode(block, type=_TextBlock).text)
    except (msgspec.MsgspecError, UnicodeError, ValueError):
        return None


def _is_member(text: bytes, node: Node) -> bool:
    """Whether a text is the structure, or one of its own strings, or lists, or objects."""
    try:
        members = node.members() if node.kind == "object" else []
    except TooDeep:
        return False
    values = [member.value for member in members] or [node.raw]
    near = [value for value in values if len(value) >= len(text) // _SPACED]
    return any(_spells(text, value) for value in near[:_FEW_MEMBERS])


def _repeats(content: Sequence[Buffer], node: Node) -> bool:
    """Whether the content only repeats the structure: as one text, as its `result`, or as one text per item."""
    if not content:
        return True
    if sum(map(len, content)) < node.size // _SPACED:
        return False
    try:
        texts = [unescaped(msgspec.json.decode(block, type=_TextBlock).text) for block in content]
        members = node.members() if node.kind == "object" else []
        values = [node] if len(members) != 1 else [node, node.child(0)]
        # A text that isn't JSON stays a text, even if the structure has it as a string.
        if len(texts) == 1 and any(_spells(texts[0], value.raw, bare=False) for value in values):
            return True
        lists = [value for value in values if value.kind == "array" and value.total() == len(texts)]
        return any(all(map(_spells, texts, value.all_items())) for value in lists)
    except (msgspec.MsgspecError, TooDeep, RecursionError, UnicodeError, ValueError):
        return False


def _spells(written: bytes, raw: Buffer, bare: bool = True) -> bool:
    """Whether a text spells a value; with `bare`, a string may come without its quotes."""
    root = sniff(written)
    if (written if root is None else root.raw) == raw:
        return True
    del root
    if bare and kind_of(raw) == "string" and unescaped(raw) == written:
        return True
    if len(raw) > _WORTH_COMPARING:
        # Decoding it would take many times its memory; keeping both copies takes only twice.
        return False
    try:
        return bool(_meaning(written) == _meaning(bytes(raw)))
    except ValueError:
        return False


def _meaning(raw: bytes) -> Any:
    """Return a JSON value, equal only to what every client sees as the same: `1` isn't `true` or `1.0`."""
    return json.loads(
        raw, parse_int=_whole, parse_float=_real, parse_constant=_refused, object_pairs_hook=_object
    )


def _whole(spelled: str) -> tuple[str]:
    return (spelled,)


def _real(spelled: str) -> tuple[Decimal | str, bool]:
    try:
        return Decimal(spelled), spelled[0] == "-"
    except InvalidOperation:
        # The exponent is too large even for a decimal.
        return spelled, True


def _refused(spelled: str) -> Any:
    raise ValueError(f"{spelled} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("of equal keys, clients see one or the other")
    return members


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
    if type(value) is not dict or len(value) > _FEW_MEMBERS or not _STRINGS.issuperset(map(type, value)):
        return parse(to_json(value))
    if not any(map(_may_be_large, value.values())):
        return Node(_encoded(value), is_own=True)
    totals = {key: len(member) for key, member in value.items() if type(member) is list}
    return from_members({key: _member(member) for key, member in value.items()}, totals)


def _may_be_large(member: Any) -> bool:
    """Whether a member may be so large that parsing it again, to cut it, would cost more than writing it alone."""
    kind = type(member)
    if kind is list:
        return len(member) > _FEW_ITEMS
    if kind is dict:
        return len(member) > _FEW_ITEMS or not _SCALARS.issuperset(map(type, member.values()))
    return kind not in _SCALARS or (kind is str and len(member) > _LONG_TEXT)


def _member(value: Any) -> bytes:
    return _encoded(checked(bytes(value)) if isinstance(value, msgspec.Raw) else value)


def checked(raw: bytes) -> msgspec.Raw:
    """Return JSON from elsewhere, after checking that it is valid."""
    parse(raw)
    return msgspec.Raw(raw)


def to_json(value: Any) -> bytes:
    """Return a Python value as JSON, as it will be sent; PayloadError names what has no JSON form."""
    return respelled(_encoded(value))


def _encoded(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise PayloadError("the payload contains itself or is nested too deeply to be sent") from None
    except JSONError:
        raise
    except UnicodeEncodeError as error:
        raise PayloadError(
            f"the payload holds a lone surrogate (half a character) at position {error.start} of a string; "
            "replace it, for example with text.encode('utf-8', 'replace').decode()"
        ) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise PayloadError(f"the payload cannot be written as JSON: {error}") from None
    except Exception as error:
        # Properties and generators run the author's code, which may raise anything.
        raise PayloadError(f"the payload cannot be encoded: it raised {type(error).__name__}") from error


def _foreign(value: Any) -> Any:
    """Convert types that msgspec doesn't know by what they can do, so that their libraries needn't be imported."""
    if hasattr(value, "model_dump_json"):
        return checked(value.model_dump_json(by_alias=True).encode())
    plain: type[Any]
    for plain in (str, bytes, int, float):
        # JSON has no subclasses, so encode the plain value.
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
        # msgspec encodes these itself, so it only asks about one that is used as a key.
        raise TypeError(f"a key must be a string or a number, not a {type(value).__name__}")
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
        # An object that raises when it is inspected isn't a block.
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
            raise PayloadError(
                f"a content block is an object with a `type`, got a JSON value of type {node.kind}"
            )
        return node.raw
    if hasattr(block, "model_dump_json"):
        # The wire form omits absent fields instead of setting them to null.
        return bytes(block.model_dump_json(by_alias=True, exclude_none=True), "utf-8")
    return to_json(block)

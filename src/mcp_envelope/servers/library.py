"""What an adapter knows of its library: how a tool's values become results there.

Strategy: a protocol, one object for each tool. So a run, and whatever gathers items, need not know the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..front import Call
    from ..sealed import Sealed


class Library(Protocol):
    """What an adapter knows of one tool, in terms of its library."""

    # Whether the library puts this tool's values into a member `result`.
    wraps: bool
    # Whether the library makes a structured lane of this tool's values that are no objects.
    structures: bool

    def is_result(self, value: object) -> bool:
        """Whether this is a result already, or something else that is not data: blocks, input to ask for."""
        ...

    def is_hand_made(self, value: object) -> bool:
        """Whether the tool's author made a whole result."""
        ...

    def to_json(self, value: Any) -> bytes:
        """The value as the library would write it into `structuredContent`, without a member around it."""
        ...

    def item_to_json(self, item: Any) -> bytes:
        """The same for one of the items that a tool yields."""
        ...

    def is_yielded(self, value: object) -> bool:
        """Whether a value is to be read item by item."""
        ...

    def yielded(self, values: list[Any]) -> Any:
        """What was yielded, as something of which the library makes what it makes of an iterator."""
        ...

    def again(self, value: Any, written: bytes) -> Any:
        """What the library gets for a value that writing has used up."""
        ...

    def of(self, sealed: Sealed, call: Call) -> Any:
        """A sealed result, as something that the library passes on as it is."""
        ...

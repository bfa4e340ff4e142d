"""Arguments that several tools take, and links to the source of a node."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from mcp_envelope import Link
from mcp_envelope.anchors import NodeId

NodeArgument = Annotated[NodeId, Field(description="A node id: <lang>:<relpath>[#qualifiedName].")]
OptionalNode = Annotated[NodeId | None, Field(description="A node id, instead of file, line and col.")]
Filter = Annotated[str, Field(description="Only files whose path begins with this, such as src/.")]
File = Annotated[str | None, Field(description="A file, relative to the root.")]
Line = Annotated[int | None, Field(ge=1, description="From 1.")]
Col = Annotated[int | None, Field(ge=1, description="From 1, in UTF-16 code units.")]
EdgeKind = Literal["calls", "inherits", "references", "imports", "contains"]


def link(node: NodeId) -> Link:
    return Link(
        f"codemap://source/{quote(str(node), safe=':/')}", f"Source of {node}", mime_type="text/plain"
    )

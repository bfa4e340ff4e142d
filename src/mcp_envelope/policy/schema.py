"""The table of settings, told to others: JSON Schema for editors, and a table for the documentation.

Strategy: both are made from `SETTINGS`, so neither can fall behind it. Each setting is defined once and
referred to from the root, the profiles and the tools. The schemas are closed, since a wrong name is what an
editor should show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .documents import RESPONSE_GLOBAL, RESPONSE_TOOL
from .table import PROFILES, SETTINGS, Setting

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_PROFILE: Final[dict[str, Any]] = {
    "description": "The profile that this one stands on.",
    "anyOf": [{"enum": list(PROFILES)}, {"type": "string"}],
    "default": PROFILES[0],
}


def settings_schema() -> dict[str, Any]:
    """The schema of `mcp-envelope.toml`, and of the table `tool.mcp-envelope`."""
    in_profile = [name for name in SETTINGS if name != "profile"]
    profile = _layer(in_profile, "A profile.", {"base": _PROFILE})
    built_in = _layer(in_profile, "What a built-in profile sets besides the metadata it shows.")
    profiles = {
        "type": "object",
        "description": "What the built-in profiles and your own set.",
        "properties": dict.fromkeys(PROFILES, built_in),
        "additionalProperties": profile,
    }
    tools = {
        "type": "object",
        "description": 'Settings per tool. A name may be a pattern, such as "search_*".',
        "additionalProperties": _layer(SETTINGS, "The settings of a tool."),
    }
    root = _layer(SETTINGS, "Settings of mcp-envelope.", {"profiles": profiles, "tools": tools})
    return _document("mcp-envelope.toml", root, SETTINGS)


def response_config_schema() -> dict[str, Any]:
    """The schema of `.code-scalpel/response_config.json`."""
    tools = {
        "type": "object",
        "description": "Settings per tool.",
        "additionalProperties": _layer(RESPONSE_TOOL, "The settings of a tool."),
    }
    root = {
        "type": "object",
        "properties": {"global": _layer(RESPONSE_GLOBAL, "Settings of all tools."), "tool_overrides": tools},
        "additionalProperties": False,
    }
    return _document("response_config.json", root, RESPONSE_TOOL)


def markdown_table() -> str:
    """All settings, as the documentation shows them."""
    rows = [
        "| setting | kind | default | environment | what it does |",
        "|---|---|---|---|---|",
        *(
            f"| `{each.name}` | {each.kind.words} | {_default(each)} | `{each.variable}` | {each.doc} |"
            for each in SETTINGS.values()
        ),
    ]
    return "\n".join(rows) + "\n"


def _document(title: str, root: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    definitions = {name: _definition(SETTINGS[name]) for name in names}
    properties = {"$schema": {"type": "string"}, **root["properties"]}
    return {"$schema": _DRAFT, "title": title, **root, "properties": properties, "$defs": definitions}


def _layer(names: Iterable[str], description: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    names = tuple(names)
    layer: dict[str, Any] = {
        "type": "object",
        "description": description,
        "properties": {**{name: {"$ref": f"#/$defs/{name}"} for name in names}, **(more or {})},
        "additionalProperties": False,
    }
    pairs = sorted(
        {tuple(sorted((name, rival))) for name in names if (rival := SETTINGS[name].rival) in names}
    )
    if pairs:
        layer["allOf"] = [{"not": {"required": list(pair)}} for pair in pairs]
    return layer


def _definition(setting: Setting) -> dict[str, Any]:
    definition = {"description": setting.doc.replace("`", ""), **setting.kind.schema()}
    if setting.default is not None:
        definition["default"] = _plain(setting.default)
    return definition


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def _default(setting: Setting) -> str:
    if isinstance(setting.default, bool):
        return f"`{str(setting.default).lower()}`"
    return f"`{setting.default}`" if setting.default else ""

"""The JSON Schema of the settings files, for editors: made from the table of settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ..dialects import SettingsFile, registry
from .policy import PROFILES, SETTINGS
from .values import Setting

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def settings_schema() -> dict[str, Any]:
    """Return the schema of `mcp-envelope.toml`, and of the table `tool.mcp-envelope`."""
    in_profile = [name for name in SETTINGS if name != "profile"]
    base = {
        "description": "The profile that this one is based on.",
        "anyOf": [{"enum": list(PROFILES)}, {"type": "string"}],
        "default": PROFILES[0],
    }
    profiles = _tables("Settings of the built-in profiles and of your own.", in_profile, base=base)
    profiles["properties"] = dict.fromkeys(PROFILES, _table("The settings.", in_profile))
    tools = _tables('Settings per tool. A name may be a pattern, such as "search_*".', SETTINGS)
    root = _table("Settings of mcp-envelope.", SETTINGS, profiles=profiles, tools=tools)
    document = _document("mcp-envelope.toml", root, SETTINGS)
    # Those that are installed, too.
    document["$defs"]["dialect"]["anyOf"][0]["enum"] = list(registry.names())
    return document


def own_file_schema(file: SettingsFile) -> dict[str, Any]:
    """Return the schema of a dialect's own file."""
    general = _table("Settings of all tools.", file.settings)
    tools = _tables("Settings per tool.", file.tool_settings)
    root = _table("Settings of results.", (), **{file.everywhere: general, file.per_tool: tools})
    return _document(file.path.rpartition("/")[2], root, dict.fromkeys(file.settings + file.tool_settings))


def _document(title: str, root: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    root["properties"]["$schema"] = {"type": "string"}
    definitions = {name: _definition(SETTINGS[name]) for name in names}
    return {"$schema": _DRAFT, "title": title, **root, "$defs": definitions}


def _tables(description: str, names: Iterable[str], **more: Any) -> dict[str, Any]:
    entry = _table("The settings.", names, **more)
    return {"type": "object", "description": description, "additionalProperties": entry}


def _table(description: str, names: Iterable[str], **more: Any) -> dict[str, Any]:
    properties = {**{name: {"$ref": f"#/$defs/{name}"} for name in names}, **more}
    table: dict[str, Any] = {"type": "object", "description": description, "properties": properties}
    table["additionalProperties"] = False
    return {**table, "not": {"required": ["tokens", "bytes"]}} if "tokens" in properties else table


def _definition(setting: Setting) -> dict[str, Any]:
    kind: Any = Annotated[setting.type, setting.meta]
    if setting.units:
        kind |= Annotated[str, Meta(extra_json_schema={"pattern": setting.units.pattern})]
    [schema], parts = msgspec.json.schema_components([kind], ref_template="{name}")
    definition = {"description": setting.doc.replace("`", ""), **parts.get(schema.get("$ref", ""), schema)}
    if setting.default is not None:
        definition["default"] = dict(setting.default) if setting.default == {} else setting.default
    return definition

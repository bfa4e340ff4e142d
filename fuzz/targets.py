"""What is fuzzed: each target takes any bytes, and raises if a promise doesn't hold for them.

Strategy: the bytes are what a stranger controls (frames, arguments, files), or choices of which `fuzz/shapes.py`
makes a result and its schema. Everything runs in one process, without a disk, at the smallest budget and with
results that are just larger than it, so that a fuzzer tries hundreds in a second.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
from fuzz.memory import MemoryStore
from fuzz.shapes import Choices
from tests.proxy.harness import NOTICE, Talk, call, frame, request, result, texts, tool
from tests.shown import shown

from mcp_envelope.clients import config_file, wrapping
from mcp_envelope.clients.config_file import NotConfig
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import Unsafe, WrapOptions
from mcp_envelope.config import Settings
from mcp_envelope.config.files import Broken, read_toml
from mcp_envelope.config.policy import SETTINGS
from mcp_envelope.envelope import seal
from mcp_envelope.proxy.interceptor import Interceptor
from mcp_envelope.vault import grep, query, sql
from mcp_envelope.vault.vault import Vault

Target = Callable[[bytes], object]

TOKENS: Final = 128
MOST: Final = 4000
WISH: Final = WrapOptions(Launch(("/opt/bin/mcp-envelope",)), with_remote=True)


class Mistakes(logging.Handler):
    """A mistake of ours never loses a frame, so it would go unseen: here it does not."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            raise AssertionError(self.format(record))


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def talk_with(vault: Vault | str, tokens: int = TOKENS, meter: str = "exact") -> Talk:
    settings = Settings(os.devnull, {"MCP_ENVELOPE_TOKENS": str(tokens), "MCP_ENVELOPE_METER": meter})
    return Talk(folder(), tokens, settings=settings, vault=vault)


# -- frames -------------------------------------------------------------------------------------------------

_OWN: Final = re.compile(rb'"mcp-envelope-[0-9a-f]{16}-\d+"')


def frames(data: bytes) -> None:
    """Lines into the interceptor, those that begin with `<` from the server: none raises, none is lost.

    A `!` in front asks for the exact meter. From the server, the id `"$"` is that of the proxy's last own request.
    """
    gateway = _listener("exact" if data[:1] == b"!" else "estimate").gateway
    wire, own = Interceptor(gateway), b'"$"'
    for line in data.removeprefix(b"!").split(b"\n"):
        is_reply, waits = line[:1] == b"<", bool(wire.list_requests)
        sent = line[1:].replace(b'"$"', own) if is_reply else line
        back, onward = wire.from_server(sent) if is_reply else wire.from_client(sent)
        # What gives nothing waits for a tool list, or is about what does.
        assert back or onward or waits or wire.list_requests or own in sent
        assert all(len(each) <= max(len(sent), 20_000) for each in (*back, *onward))
        own = next((found[0] for each in onward if (found := _OWN.search(each))), own)
    wire.lost("gone")


@cache
def _listener(meter: str) -> Talk:
    """Conversations share the gateway, which remembers what it published."""
    return talk_with("none", meter=meter)


# -- a whole conversation -----------------------------------------------------------------------------------


def conversations(data: bytes) -> None:
    """A tool is listed and called: each lane fits, is valid, and what was cut is all there."""
    choices = Choices(data)
    choices.most = choices.one_of((400, 400, 400, 400, 400, 400, 400, MOST))
    # The exact meter takes longer than all the rest.
    talk = _talk(choices.one_of(("estimate", "estimate", "chars4", "exact")))
    budget = {"tokenBudget": choices.one_of((200, 200, 300, TOKENS))}
    if choices.below(2):
        schema, value = choices.typed(choices.one_of((2, 2, 2, 3)))
        (entry, *_) = talk.listed(tool("typed", schema))
        words = json.dumps(value) if choices.below(4) else "as told below"
        got = talk.called("typed", {"content": texts(words), "structuredContent": value}, budget)
        told, structured = entry.get("outputSchema"), got.get("structuredContent")
        if structured is not None and structured != value and not got.get("isError") and told is not None:
            assert jsonschema_rs.is_valid(told, structured)
        whole: Any = value
    else:
        whole = choices.value(3)
        words = whole if isinstance(whole, str) else json.dumps(whole, indent=choices.one_of((None, 2)))
        talk.listed(tool("text"))
        got = talk.called("text", {"content": texts(words)}, budget)
    limit = talk.gateway.policy("", budget["tokenBudget"]).budget
    assert limit is not None
    assert all(map(limit.holds, _lanes(got)))
    notice = got.get("_meta", {}).get(NOTICE, {})
    if notice.get("truncated"):
        # A text that isn't a document is kept in its block.
        kept = _whole(talk, notice["handle"], MOST)
        assert kept == whole or kept["content"][0]["text"] == words


def _lanes(got: dict[str, Any]) -> list[bytes]:
    return [shown(got["content"]), *([frame(got["structuredContent"])] if "structuredContent" in got else [])]


def _whole(talk: Talk, handle: str, tokens: int) -> Any:
    parts, offset = [], 0
    while True:
        page = talk.read(handle, exact=True, offset=offset, tokenBudget=tokens)
        assert not page.get("isError"), page
        parts.append(page["content"][-1]["text"])
        cuts = page.get("_meta", {}).get(NOTICE, {}).get("dropped", [])
        if not cuts:
            break
        offset = cuts[0]["offset"]
    return json.loads("".join(parts))


@cache
def _talk(meter: str) -> Talk:
    return talk_with(Vault(MemoryStore(keeps=4)), meter=meter)


# -- reading back -------------------------------------------------------------------------------------------

SECRET: Final = "the neighbour's own words"
ROWS: Final = [
    {"id": n, "city": "Bern" if n % 3 else "Ulm", "size": n / 7, "note": "x" * n} for n in range(20)
]


@cache
def _stored() -> tuple[Talk, str, str]:
    """A conversation with a vault, the handle of a result in it, and one of somebody else's."""
    vault = Vault(MemoryStore(keeps=2))
    # A page that has to be cut takes ten times as long: an input may ask for that.
    talk = talk_with(vault, 1000)
    mine = seal(ROWS, tokens=TOKENS, vault=vault.of(None))
    other = seal({"rows": [SECRET] * 60}, tokens=TOKENS, vault=vault.of("neighbour"))
    assert mine.handle
    assert other.handle
    talk.listed(tool("text"))
    return talk, mine.handle, other.handle


def _read(arguments: Any) -> list[Any]:
    """Call our tool; return the answers to it."""
    return _asked(call("read", "envelope_read", arguments), arguments)


def _asked(line: bytes, arguments: Any) -> list[Any]:
    talk, *_ = _stored()
    back, onward = talk.send(line)
    assert len(back) + len(onward) == 1
    answers = list(map(json.loads, back))
    for answer in answers:
        got = answer.get("result", answer.get("error"))
        assert SECRET not in json.dumps(got).replace(json.dumps(arguments)[1:-1], "")
        if "content" in got:
            assert talk.gateway.policy("", arguments.get("tokenBudget")).budget.holds(shown(got["content"]))  # type: ignore[union-attr]
            assert "INTERNAL" not in str(got.get("_meta", ""))
    talk.reply(result("read", content=[]))
    return answers


def handles(data: bytes) -> list[Any]:
    """Any text, or JSON, as handle, path, offset …; `@` stands for our handle, `^` for a neighbour's.

    A line that begins with `@` is our handle, so that most inputs read something. An empty one says nothing.
    """
    _, mine, other = _stored()
    text = data.decode("utf-8", "replace").replace("@", mine).replace("^", other)
    handle, *rest = text.split("\n")
    if handle.startswith("envelope://"):
        return _asked(request("read", "resources/read", uri=handle), {"uri": handle})
    arguments: dict[str, Any] = {"handle": mine if handle.startswith(mine) else handle}
    names = ("path", "offset", "lines", "region", "exact", "scale", "tokenBudget")
    for name, value in zip(names, rest, strict=False):
        try:
            arguments[name] = json.loads(value)
        except (ValueError, RecursionError):
            arguments[name] = value
        if value == "" or (isinstance(arguments[name], float) and not math.isfinite(arguments[name])):
            del arguments[name]
    return _read(arguments)


def hurry() -> None:
    """A search may take 10 seconds, and a fuzzer soon finds those that do. Once it is stopped, it was tried."""
    for way in (grep, query, sql):
        msgspec.structs.force_setattr(way.LIMITS, "seconds", 0.02)


def queries(data: bytes) -> list[Any]:
    """Any text as SQL, JMESPath or a pattern, by its first letter; a capital asks for the smallest budget.

    In SQL, `^` stands for a neighbour's handle.
    """
    _, mine, other = _stored()
    kind = {b"s": "sql", b"q": "query", b"g": "grep"}.get(data[:1].lower(), "sql")
    text = data[1:].decode("utf-8", "replace")
    budget = {"tokenBudget": TOKENS} if data[:1].isupper() else {}
    return _read({"handle": mine, kind: text.replace("^", other) if kind == "sql" else text, **budget})


# -- files --------------------------------------------------------------------------------------------------


def settings(data: bytes) -> None:
    """Any text as a settings file, and as the value of each variable: a complaint, or a policy."""
    text = data.decode("utf-8", "replace")
    try:
        for problem in read_toml(text, "f").problems:
            assert "\n" not in problem
    except Broken:
        pass
    lines = text.replace("\0", "").splitlines()
    environ = {setting.variable: value for setting, value in zip(SETTINGS.values(), lines, strict=False)}
    environ.pop("MCP_ENVELOPE_CONFIG", None)
    said: list[str] = []
    policy = Settings("/dev/null", environ, folder(), say=said.append).policy("tool", {"tokenBudget": text})
    assert policy.budget is None or policy.budget.limit > 0


def clients(data: bytes) -> None:
    """Any text as a client's configuration: unwrapping what was wrapped gives every byte back. Both may refuse."""
    for kind in ("json", "toml"):
        try:
            before = config_file.read(data, f"file.{kind}")
        except NotConfig:
            continue
        try:
            wrapping.unwrap(before, None, lambda name: True)
            plan = wrapping.wrap(before, WISH, lambda name: True, lambda url: False)
        except Unsafe:
            continue
        if not plan.is_change or plan.is_wrapped:
            continue
        after = config_file.read(plan.text.encode("utf-8", "surrogatepass"), f"file.{kind}")
        assert wrapping.unwrap(after, before, lambda name: True).text == before.text
        assert wrapping.unwrap(after, None, lambda name: True).text == before.text


TARGETS: Final[dict[str, Target]] = {
    "frames": frames,
    "conversations": conversations,
    "handles": handles,
    "queries": queries,
    "settings": settings,
    "clients": clients,
}

_LISTING: Final = result(
    "l", tools=[tool("t", {"type": "object", "properties": {"rows": {"type": "array"}}})]
)
# What an input may be made of, where no code in Python tells a fuzzer.
WORDS: Final[dict[str, str]] = {
    "queries": "SELECT FROM WHERE GROUP ORDER BY HAVING LIMIT OFFSET JOIN ON UNION WITH AS CASE WHEN THEN ELSE END "
    "DISTINCT VALUES OVER( PARTITION count(*) sum( avg( total( median( json_each( json_extract( substr( like( hex( "
    'CAST( NULL TRUE BETWEEN EXISTS LIKE GLOB COLLATE data city size note rowid main. "id" '
    "[*] [?id] [] [::-1] &id @ length( keys( values( to_string( to_array( sort_by( max_by( map( merge( join( "
    "contains( not_null( type( `1` (?i) (?s) [^a] \\b \\pL {2,3} .*? ^ $ |",
    "frames": "jsonrpc id method params result error tools/list tools/call tools initialize clientInfo name "
    "arguments tokenBudget content structuredContent isError _meta resultType task taskId tasks/get tasks/result "
    "envelope_read handle resources/read uri envelope:// notifications/cancelled requestId cursor nextCursor "
    "notifications/tools/list_changed outputSchema inputSchema \\ud800 NaN null true \\u0000",
}
# Where a fuzzer starts.
SEEDS: Final[dict[str, list[bytes]]] = {
    "frames": [
        b"\n".join([request("l", "tools/list"), b"<" + _LISTING, call(1, "t", {"tokenBudget": 300})])
        + b"\n<"
        + result(1, content=texts("word " * 200), structuredContent={"rows": ["word"] * 200}),
        b"\n".join(
            [request(0, "initialize", clientInfo={"name": "claude-code"}), b"<" + result(0, capabilities={})]
        ),
        call(5, "u", {"tokenBudget": 300})
        + b'\n<{"id":"$","result":{"tools":[{"name":"u","inputSchema":{"type":"object"}}],"nextCursor":"a"}}'
        + b'\n<{"id":"$","result":{"tools":[]}}\n<'
        + result(5, content=texts("words " * 200)),
        b"!" + call(3, "t") + b"\n<" + result(3, content=texts("words " * 200)),
        call(4, "t") + b'\n<{"jsonrpc":"2.0","id":4,"error":{"code":-32000,"message":"a","data":[1]}}',
        call(3, "envelope_read", {"handle": "x"}),
        b'[{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}},{"jsonrpc":"2.0","method":"x"}]',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        b'{"jsonrpc":"2.0","id":9,"method":"tasks/result","params":{"taskId":"a"}}\n<'
        b'{"jsonrpc":"2.0","id":"9","result":{"content":[],"resultType":"complete","_meta":{}}}',
    ],
    "conversations": [bytes(range(256)), bytes(range(255, 0, -1)), bytes(range(1, 256, 7)) * 4],
    "handles": [
        b"@\n\n0",
        b"^\n/3/city\n4",
        b"@\n/5/note\n2\n\n\ntrue",
        b"@\n/6/note\n\n1-2",
        b"@\n\n4\n\n\n\n\n128",
        b"envelope://@/3/city",
        b"envelope://^",
        b'@\n"/"\n-1',
    ],
    "queries": [
        b"sSELECT city, count(*), sum(size) FROM data GROUP BY 1 HAVING 1 < 2 ORDER BY 2 DESC LIMIT 5",
        b"sWITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM a WHERE n < 50) SELECT max(n) FROM a",
        b"SSELECT * FROM data",
        b"sSELECT * FROM ^.rows JOIN data ON size > 1",
        b"Q[*].note",
        b"q[?city=='Bern'].{id: id, size: size} | sort_by(@, &size)[-3:]",
        b"qmax_by([], &id)",
        b"gB[eo]rn|(?i)ulm",
    ],
    "settings": [
        b'tokens = 900\nredact = "keys"\nhint = "a"\n[tools.x]\ntokens = 300\nlists = { "/rows" = "-size" }\n'
        b'[profiles.p]\nbase = "q"\nredact_patterns = { a = "b" }\n[workspace]\nid = "a"\n',
        b"900\n4k\nnative\nminimal\n1h\n",
    ],
    "clients": [
        b'{ // a\n "mcpServers": {\n  "a": {"command": "npx", "args": ["-y", "b"], "env": {"C": "d"}},\n'
        b'  "e": {"type": "http", "url": "https://f.example/mcp", "headers": {"G": "h"}},\n },\n}\n',
        b'[mcp_servers.a]\ncommand = "npx"\nargs = ["-y", "b"] # c\n[mcp_servers.a.env]\nD = "e"\n',
        b'{"projects":{"/a":{"mcpServers":{"b":{"command":"c"}}}}}',
        b'{"mcpServers":{"a":{"command":"mcp-envelope","args":["proxy","--tokens","9","--","b"]},'
        b'"c":{"command":"mcp-envelope","args":["proxy","--header-env","G=E1","--url","https://f.example"],'
        b'"env":{"E1":"h"}}}}',
    ],
}

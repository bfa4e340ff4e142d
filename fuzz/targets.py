"""What is fuzzed: each target takes any bytes, and raises if a promise doesn't hold for them.

Strategy: the bytes are what a stranger controls (frames, arguments, files), or choices of which Hypothesis makes
a result and its schema. Everything runs in one process, so that a fuzzer tries hundreds in a second.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st
from tests.proxy.harness import Talk, call, frame, request, result, texts, tool
from tests.shown import shown
from tests.strategies import large_values, object_shapes

from mcp_envelope.clients import config_file, wrapping
from mcp_envelope.clients.config_file import NotConfig
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import Unsafe, WrapOptions
from mcp_envelope.config import Settings
from mcp_envelope.config.files import Broken, read_toml
from mcp_envelope.config.policy import SETTINGS
from mcp_envelope.envelope import seal
from mcp_envelope.vault.sqlite import SQLiteStore
from mcp_envelope.vault.vault import Vault

Target = Callable[[bytes], object]

TOKENS: Final = 200
WISH: Final = WrapOptions(Launch(("/opt/bin/mcp-envelope",)), with_remote=True)


class Mistakes(logging.Handler):
    """A mistake of ours never loses a frame, so it would go unseen: here it does not."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            raise AssertionError(self.format(record))


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


# -- frames -------------------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    """Lines into the interceptor, those that begin with `<` from the server: none raises, none is lost."""
    talk = Talk(folder(), tokens=TOKENS, vault="none")
    kept = 0
    for line in data.split(b"\n"):
        back, onward = talk.reply(line[1:]) if line[:1] == b"<" else talk.send(line)
        kept += not back and not onward
        assert all(len(each) <= max(len(line), 20_000) for each in (*back, *onward))
    assert kept == 0 or talk.wire.list_requests.is_crowded or talk.wire.list_requests
    talk.wire.lost("gone")


# -- a whole conversation -----------------------------------------------------------------------------------


@given(object_shapes.flatmap(lambda shape: st.tuples(st.just(shape.schema), shape.values)), large_values)
def _conversation(typed: tuple[Any, Any], untyped: Any) -> None:
    """A tool is listed and called: each lane fits, is valid, and what was cut is all there."""
    talk = _talk()
    schema, value = typed
    data = frame(value)
    entries = {each["name"]: each for each in talk.listed(tool("typed", schema), tool("text"))}
    told = entries["typed"].get("outputSchema")
    got = talk.called("typed", {"content": texts(data.decode()), "structuredContent": value})
    for lane in _lanes(got):
        assert talk.gateway.policy("").budget.holds(lane)  # type: ignore[union-attr]
    structured = got.get("structuredContent")
    if structured is not None and structured != value and not got.get("isError") and told is not None:
        assert jsonschema_rs.is_valid(told, structured)
    said = json.dumps(untyped, ensure_ascii=False)
    got = talk.called("text", {"content": texts(said)})
    for lane in _lanes(got):
        assert talk.gateway.policy("").budget.holds(lane)  # type: ignore[union-attr]
    notice = got.get("_meta", {}).get("io.github.mcp-envelope/notice", {})
    if notice.get("truncated"):
        whole = _whole(talk, notice["handle"])
        # A text that isn't a document is kept in its block.
        assert whole == untyped or whole["content"][0]["text"] == said


def _lanes(got: dict[str, Any]) -> list[bytes]:
    return [shown(got["content"]), *([frame(got["structuredContent"])] if "structuredContent" in got else [])]


def _whole(talk: Talk, handle: str) -> Any:
    parts, offset = [], 0
    while True:
        page = talk.read(handle, exact=True, offset=offset)
        assert not page.get("isError"), page
        parts.append(page["content"][-1]["text"])
        cuts = page.get("_meta", {}).get("io.github.mcp-envelope/notice", {}).get("dropped", [])
        if not cuts:
            break
        offset = cuts[0]["offset"]
    return json.loads("".join(parts))


@cache
def _talk() -> Talk:
    return Talk(folder(), tokens=TOKENS, vault=str(folder() / "talk.db"))


def conversations(data: bytes) -> None:
    _conversation.hypothesis.fuzz_one_input(data)  # type: ignore[attr-defined]


# -- reading back -------------------------------------------------------------------------------------------

SECRET: Final = "the neighbour's own words"
ROWS: Final = [
    {"id": n, "city": "Bern" if n % 3 else "Ulm", "size": n / 7, "note": "x" * n} for n in range(60)
]


@cache
def _stored() -> tuple[Talk, str, str]:
    """A conversation with a vault, the handle of a result in it, and one of somebody else's."""
    path = folder() / "reads.db"
    vault = Vault(SQLiteStore(path))
    mine = seal(ROWS, budget=Talk(folder(), tokens=TOKENS).gateway.policy("").budget, vault=vault.of(None))
    other = seal({"rows": [SECRET] * 600}, tokens=TOKENS, vault=vault.of("neighbour"))
    assert mine.handle
    assert other.handle
    talk = Talk(folder(), tokens=TOKENS, vault=str(path))
    talk.listed(tool("text"))
    return talk, mine.handle, other.handle


def _read(arguments: Any) -> None:
    talk, *_ = _stored()
    back, onward = talk.send(call("read", "envelope_read", arguments))
    assert len(back) + len(onward) == 1
    for answer in map(json.loads, back):
        got = answer.get("result", answer.get("error"))
        assert SECRET not in json.dumps(got).replace(json.dumps(arguments)[1:-1], "")
        if "content" in got:
            assert talk.gateway.policy("", arguments.get("tokenBudget")).budget.holds(shown(got["content"]))  # type: ignore[union-attr]
            assert "INTERNAL" not in str(got.get("_meta", ""))
    talk.reply(result("read", content=[]))


def handles(data: bytes) -> None:
    """Any text, or JSON, as handle, path, offset …; `@` stands for our handle, `^` for a neighbour's."""
    _, mine, other = _stored()
    text = data.decode("utf-8", "replace").replace("@", mine).replace("^", other)
    handle, *rest = text.split("\n")
    arguments: dict[str, Any] = {"handle": handle}
    for name, value in zip(
        ("path", "offset", "lines", "region", "exact", "scale", "tokenBudget"), rest, strict=False
    ):
        try:
            arguments[name] = json.loads(value)
        except (ValueError, RecursionError):
            arguments[name] = value
        if isinstance(arguments[name], float) and not math.isfinite(arguments[name]):
            del arguments[name]
    _read(arguments)


def queries(data: bytes) -> None:
    """Any text as SQL, JMESPath or a pattern, by its first letter."""
    _, mine, _ = _stored()
    kind = {b"s": "sql", b"q": "query", b"g": "grep"}.get(data[:1], "sql")
    _read({"handle": mine, kind: data[1:].decode("utf-8", "replace")})


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
    """Any text as a client's configuration: unwrapping what was wrapped gives every byte back."""
    for kind in ("json", "toml"):
        try:
            before = config_file.read(data, f"file.{kind}")
        except NotConfig:
            continue
        try:
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
# Where a fuzzer starts.
SEEDS: Final[dict[str, list[bytes]]] = {
    "frames": [
        b"\n".join([request("l", "tools/list"), b"<" + _LISTING, call(1, "t", {"tokenBudget": 300})])
        + b"\n<"
        + result(1, content=texts("word " * 400), structuredContent={"rows": ["word"] * 400}),
        b"\n".join(
            [request(0, "initialize", clientInfo={"name": "claude-code"}), b"<" + result(0, capabilities={})]
        ),
        call(3, "envelope_read", {"handle": "x"}),
        b'[{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}},{"jsonrpc":"2.0","method":"x"}]',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        b'{"jsonrpc":"2.0","id":9,"method":"tasks/result","params":{"taskId":"a"}}\n<'
        b'{"jsonrpc":"2.0","id":"9","result":{"content":[],"resultType":"complete","_meta":{}}}',
    ],
    "conversations": [bytes(range(256)) * 8, b"\0" * 400],
    "handles": [b"@\n\n0", b"^\n/3/city\n4", b"@\n/5\n2\n1-2\n\ntrue\n\n300", b"envelope://@", b'@\n"/"\n-1'],
    "queries": [
        b"sSELECT city, count(*), sum(size) FROM items GROUP BY 1 HAVING 1 < 2 ORDER BY 2 DESC LIMIT 5",
        b"sWITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM a WHERE n < 50) SELECT max(n) FROM a",
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
    ],
}

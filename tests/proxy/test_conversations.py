"""Random conversations: other frames pass unchanged, and every call gets one answer that fits and is valid."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..conftest import examples
from ..strategies import blocks, large_values, small_values
from .conversation import EVERYTHING
from .harness import ROWS, Talk, call, count, frame, request, result, rows, texts, tool, typed

TOOLS = {
    "plain": None,
    "rows": ROWS,
    "list": {"type": "array"},
    "text": {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
    "open": {"type": "object"},
}
NAMES = [*TOOLS, "unlisted"]
JUNK = [b"", b"nonsense", b"[]", b"[1]", b'{"a":1}', b"\xff\xfe", b'{"id":1,"id":', b'"x"', b"\x00", b"{}"]


class Mistakes(logging.Handler):
    """A mistake of ours never loses a frame, so it would go unseen: here it does not."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


@contextmanager
def watched() -> Iterator[None]:
    handler = Mistakes()
    log = logging.getLogger("mcp_envelope")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
    assert not handler.seen, handler.seen[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conversations")


ids: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 50), st.text(max_size=4), st.floats(allow_nan=False, allow_infinity=False, width=16)
)
arrays = st.one_of(st.lists(small_values, max_size=4), st.integers(0, 3000).map(lambda n: list(range(n))))
answers: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.lists(blocks, max_size=5).map(lambda content: {"content": content}),
    st.integers(0, 800).map(lambda size: typed(rows(size))),
    arrays.map(typed),
    large_values.map(
        lambda value: {
            "content": texts(json.dumps(value)),
            "structuredContent": {"result": json.dumps(value)},
        }
    ),
    large_values.map(lambda value: {"content": texts("a summary"), "structuredContent": {"data": value}}),
    st.lists(blocks, max_size=3).map(lambda content: {"content": content, "isError": True}),
    small_values.map(lambda value: {"content": [value, value]}),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(NAMES), st.booleans()),
        st.tuples(st.just("list"), st.just(""), st.booleans()),
        st.tuples(st.just("request"), st.sampled_from(["ping", "resources/list", "x/y"]), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 5), answers),
        st.tuples(st.just("refuse"), st.integers(0, 5), st.integers(0, 20_000)),
        st.tuples(st.just("own"), st.integers(0, 2), st.none()),
        st.tuples(st.just("pass"), st.booleans(), st.one_of(st.sampled_from(JUNK), small_values.map(frame))),
        st.tuples(st.just("ask"), st.booleans(), ids),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.none()),
    ),
    max_size=30,
)


class Model:
    """Both ends of a conversation, and what they should see."""

    def __init__(self, folder: Path) -> None:
        self.talk = Talk(folder, tokens=300, vault="none")
        self.schemas = {
            entry["name"]: entry.get("outputSchema")
            for entry in Talk(folder, vault="none").listed(*[tool(name, out) for name, out in TOOLS.items()])
        }
        self.next = 0
        # Requests that reached the server, in order: id -> method and tool.
        self.open: dict[Any, tuple[str, str]] = {}
        self.asked: dict[Any, tuple[str, str]] = {}
        self.own: list[Any] = []
        self.answered: list[Any] = []
        self.cancelled: set[Any] = set()

    def identifier(self) -> Any:
        self.next += 1
        return self.next if self.next % 2 else f"request {self.next}"

    def to_server(self, data: list[bytes]) -> None:
        for each in data:
            message = json.loads(each)
            if str(message["id"]).startswith("mcp-envelope-"):
                assert message["method"] == "tools/list"
                self.own.append(message["id"])
            else:
                assert message["id"] not in self.open, "sent twice"
                self.open[message["id"]] = self.asked[message["id"]]
                # Of a tool that nobody listed it cannot be told whose argument it is.
                if self.asked[message["id"]][1] in self.talk.wire.tools.by_name:
                    assert "tokenBudget" not in message["params"].get("arguments", {})

    def to_client(self, data: list[bytes]) -> None:
        for each in data:
            message = json.loads(each)
            identifier = message["id"]
            assert identifier not in self.answered, "answered twice"
            self.answered.append(identifier)
            method, name = self.asked[identifier]
            if method == "tools/call":
                self.check(name, message)

    def check(self, name: str, message: dict[str, Any]) -> None:
        if "error" in message:
            assert count(message["error"]) <= 300
            return
        got = message["result"]
        assert count(got["content"]) <= 300
        if "structuredContent" in got:
            assert count(got["structuredContent"]) <= 300
            schema = self.schemas.get(name)
            if schema is not None and not got.get("isError") and "_envelope" in got["structuredContent"]:
                # Whole, it conforms or not as the server pleases; cut, it does.
                assert jsonschema_rs.is_valid(schema, got["structuredContent"])

    def say(self, identifier: Any, method: str, name: str, data: bytes, same: bool) -> None:
        self.asked[identifier] = method, name
        back, onward = self.talk.send(data)
        assert not back
        if same and onward and b"mcp-envelope-" not in onward[0]:
            assert onward == [data]
        self.to_server(onward)

    def pick(self, number: int) -> Any:
        return list(self.open)[number % len(self.open)] if self.open else None

    def reply(self, identifier: Any, data: bytes) -> None:
        method, _ = self.open.pop(identifier)
        back, onward = self.talk.reply(data)
        if method not in ("tools/call", "tools/list"):
            assert back == [data]
        self.to_client(back)
        self.to_server(onward)

    def step(self, kind: str, one: Any, two: Any) -> None:
        identifier = self.identifier()
        if kind == "call":
            arguments = {"a": 1.0, "tokenBudget": 300} if two else {"a": 1.0}
            self.say(identifier, "tools/call", one, call(identifier, one, arguments), not two)
        elif kind == "list":
            self.say(identifier, "tools/list", "", request(identifier, "tools/list"), True)
        elif kind == "request":
            self.say(identifier, one, "", request(identifier, one, x=1.0), True)
        elif kind == "answer" and (picked := self.pick(one)) is not None:
            if self.open[picked][0] == "tools/list":
                two = {"tools": [tool(name, out) for name, out in TOOLS.items()]}
            self.reply(picked, result(picked, **two))
        elif kind == "refuse" and (picked := self.pick(one)) is not None:
            error = {"code": -32000, "message": "no " * two}
            self.reply(picked, frame({"jsonrpc": "2.0", "id": picked, "error": error}))
        elif kind == "own" and self.own:
            self.answer_own(one)
        elif kind == "pass":
            self.passes(one, two)
        elif kind == "ask":
            # The server asks under any id, the client answers: neither has to do with the client's own requests.
            self.passes(False, request(two, "roots/list"))
            self.passes(True, result(two, roots=[]))
        elif kind == "cancel" and (picked := self.pick(one)) is not None:
            self.cancelled.add(picked)
            told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": picked}}
            self.passes(True, frame(told))

    def answer_own(self, how: int) -> None:
        identifier = self.own.pop(0)
        tools = [tool(name, out) for name, out in TOOLS.items()]
        answer = [
            result(identifier, tools=tools),
            result(identifier, tools=tools[:2], nextCursor=str(self.next)),
            frame({"jsonrpc": "2.0", "id": identifier, "error": {"code": 1, "message": "no"}}),
        ][how]
        back, onward = self.talk.reply(answer)
        self.to_client(back)
        self.to_server(onward)

    def passes(self, from_client: bool, data: bytes) -> None:
        if from_client:
            assert self.talk.send(data) == ([], [data])
        else:
            assert self.talk.reply(data) == ([data], [])

    def end(self) -> None:
        while self.own:
            self.answer_own(0)
        waiting = [each for each in self.asked if each not in self.answered and each not in self.cancelled]
        before = len(self.answered)
        self.to_client(self.talk.wire.lost("The server ended."))
        assert sorted(map(str, self.answered[before:])) == sorted(map(str, waiting))


@settings(max_examples=examples(120))
@given(steps)
def test_conversations(folder: Path, conversation: list[tuple[str, Any, Any]]) -> None:
    with watched():
        model = Model(folder)
        for kind, one, two in conversation:
            model.step(kind, one, two)
        model.end()


# -- any bytes ----------------------------------------------------------------------------------------------

lines = [data for _, data in EVERYTHING if len(data) < 5000]
mutations = st.tuples(
    st.sampled_from(lines),
    st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(0, 6),
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"{", b"}", b"[", b'"', b",", b"null", rb"\ud800", b"\xff"]),
            ),
        ),
        max_size=4,
    ),
)


def mutated(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, gone, new in changes:
        at %= len(data) + 1
        data = data[:at] + new + data[at + gone :]
    return data.replace(b"\n", b" ")


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.booleans(), mutations), max_size=25))
def test_mutated_frames_never_raise_and_are_never_lost(folder: Path, said: list[Any]) -> None:
    with watched():
        talk = Talk(folder, tokens=200, vault="none")
        kept = 0
        for from_client, (data, changes) in said:
            back, onward = (talk.send if from_client else talk.reply)(mutated(data, changes))
            kept += not back and not onward
        # What is held back waits for a list that somebody was asked for.
        assert kept == 0 or talk.wire.list_requests.is_crowded or talk.wire.list_requests
        talk.wire.lost("gone")


DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE = [
    b'{"content":[{"type":"text","text":"%b"}],"content":[]}' % (b"x" * 9000),
    b'{"content":[],"content":[{"type":"text","text":"%b"}]}' % (b"x" * 9000),
    b'{"content":[{"type":"text","type":"image","text":"%b"}]}' % (b"x" * 9000),
    b'{"content":[{"type":"text","text":"\\ud800%b\\udc00"}]}' % (b"x" * 9000),
    b'{"content":[{"type":"text","text":"\xff%b"}]}' % (b"x" * 9000),
    b'{"content":[{"type":"\xff","text":"%b"}],"structuredContent":{"\xff":"%b"}}'
    % (b"x" * 9000, b"y" * 9000),
    b'{"content":[%b]}' % DEEP,
    b'{"content":[],"structuredContent":%b}' % DEEP,
    b'{"content":[],"structuredContent":{"a":%b,"rows":[],"total":1}}' % DEEP,
    b'{"content":[{"type":"text","text":"%b"}],"_meta":%b}' % (b"x" * 9000, DEEP),
    b'{"content":[{"type":"text","text":"%b"}],"_meta":5,"isError":null}' % (b"x" * 9000),
    b'{"content":[{"type":"text","text":"%b"}]}' % (b"\\\\" * 300_000),
    b'{"content":[%b]}' % b",".join([b"null"] * 50_000),
    b'{"content":[{"type":"text","text":"%b"}],"x":1e999}' % (b"[" * 9000),
    b'{"content":[{"type":"text","text":"%b"}]}' % (b'[\\"' * 9000),
    b'{"structuredContent":%b}' % (b"1" * 9000),
    b'{"structuredContent":"%b"}' % (b"\\u0000" * 9000),
    b'{"structuredContent":[%b],"content":[]}' % b",".join([b'{"a":1,"a":2}'] * 5000),
    b"[%b]" % b",".join([b"1"] * 9000),
    b'"%b"' % (b"x" * 9000),
    b"1" * 9000,
    DEEP,
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["plain", "rows", "list", "open"])
def test_hostile_results(tmp_path: Path, body: bytes, name: str) -> None:
    with watched():
        talk = Talk(tmp_path, tokens=300)
        talk.listed(*[tool(each, out) for each, out in TOOLS.items()])
        talk.send(call(1, name))
        [shown], onward = talk.reply(b'{"jsonrpc":"2.0","id":1,"result":%b}' % body)
    assert not onward
    if body == HOSTILE[0]:
        # Of equal keys the last counts, and that one is small.
        assert body in shown
        return
    assert len(shown) < 5000
    got = json.loads(shown)["result"]
    assert count(got["content"]) <= 300
    if "structuredContent" in got:
        assert count(got["structuredContent"]) <= 300
        if TOOLS[name] is not None and "_envelope" in got["structuredContent"]:
            told = talk.wire.tools.by_name[name].published.document
            assert told is not None
            assert jsonschema_rs.is_valid(told, got["structuredContent"])


@pytest.mark.parametrize(
    "identifier",
    [
        b"1" * 5000,
        b'"%b"' % (b"x" * 100_000),
        b"1e400",
        b"null",
        b"true",
        b"{}",
        DEEP,
        b'"\xff"',
        b'"\\ud800"',
        b"-0.0",
    ],
    ids=range(10),
)
def test_hostile_ids(tmp_path: Path, identifier: bytes) -> None:
    """Whatever a request is called, its answer is fitted."""
    with watched():
        talk = Talk(tmp_path, tokens=300)
        talk.listed(tool("plain"))
        sent = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"plain"}}' % identifier
        assert talk.send(sent) == ([], [sent])
        body = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 9000)
        [shown], _ = talk.reply(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (identifier, body))
    assert len(shown) - len(identifier) < 3000
    talk.send(sent)
    [lost] = talk.wire.lost("gone")
    assert b"UPSTREAM_DIED" in lost


@pytest.mark.parametrize("wrong", [b'"\xff":1', b'"method":"tools/call","\x95":2'])
@pytest.mark.parametrize("argument", [b'"tokenBudget":300', b'"a":"[redacted:token:abcdef]"'])
def test_a_request_that_is_not_utf8_and_has_to_change(tmp_path: Path, wrong: bytes, argument: bytes) -> None:
    with watched():
        talk = Talk(tmp_path, tokens=400, REDACT="tokens")
        talk.listed(tool("plain", a={}))
        sent = (
            b'{"jsonrpc":"2.0",%b,"id":1,"method":"tools/call","params":{"name":"plain","arguments":{%b}}}'
            % (wrong, argument)
        )
        back, onward = talk.send(sent)
        if onward:
            assert "tokenBudget" not in json.loads(onward[0])["params"]["arguments"]
            back, _ = talk.reply(result(1, content=texts("x" * 9000)))
    assert len(back) == 1
    assert len(back[0]) < 3000


@pytest.mark.parametrize("own", [False, True])
def test_a_tool_list_that_is_not_utf8_is_learned(tmp_path: Path, own: bool) -> None:
    with watched():
        talk = Talk(tmp_path, tokens=400)
        listed = result("list", tools=[tool("plain", ROWS)]).replace(
            b'"inputSchema"', b'"\xff":1,"inputSchema"'
        )
        if own:
            _, [asked] = talk.send(call(1, "plain", {"tokenBudget": 300}))
            back, onward = talk.reply(listed.replace(b'"list"', encode_id(asked)))
            assert "tokenBudget" not in json.loads(onward[0])["params"]["arguments"]
        else:
            talk.send(request("list", "tools/list"))
            back, _ = talk.reply(listed)
            assert [each["name"] for each in json.loads(back[0])["result"]["tools"]] == [
                "plain",
                "envelope_read",
            ]
        assert talk.wire.tools.find("plain") is not None


def encode_id(asked: bytes) -> bytes:
    return json.dumps(json.loads(asked)["id"]).encode()


def test_an_answer_is_fitted_though_the_call_could_not_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(tmp_path, tokens=400)
    talk.listed(tool("plain"))
    monkeypatch.setattr(talk.wire, "_restored", lambda *_: 1 / 0)
    sent = call(1, "plain")
    assert talk.send(sent) == ([], [sent])
    [shown], _ = talk.reply(result(1, content=texts("x" * 9000)))
    assert len(shown) < 4000


def test_ids_that_are_used_twice(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.listed(tool("plain"), tool("rows", ROWS))
    talk.send(request(1, "ping"))
    talk.send(call(1, "plain"))
    talk.send(call(1, "rows"))
    pong = result(1)
    assert talk.reply(pong) == ([pong], [])
    for _ in range(2):
        [shown], _ = talk.reply(result(1, content=texts("x" * 50_000)))
        assert len(shown) < 4000
    again = result(1, content=texts("x" * 50_000))
    assert talk.reply(again) == ([again], [])


def test_a_batch_of_ten_thousand(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.listed(tool("plain"))
    sent = b"[%b]" % b", ".join(
        [request(n, "ping") for n in range(9000)] + [call(n, "plain") for n in range(9000, 10_000)]
    )
    assert talk.send(sent) == ([], [sent])
    small = b"[%b]" % b" ,".join([result(n) for n in range(9000)])
    assert talk.reply(small) == ([small], [])
    large = [result(n, content=texts("x" * 2000)) for n in range(9000, 9500)]
    large += [result(n, content=texts("x " * 2000)) for n in range(9500, 10_000)]
    [shown], _ = talk.reply(b"[%b]" % b",".join(large))
    got = json.loads(shown)
    assert [each["id"] for each in got] == list(range(9000, 10_000))
    assert all(count(each["result"]["content"]) <= talk.tokens for each in got)


def test_a_batch_that_is_partly_ours(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.listed(tool("plain"))
    ping = request(1, "ping")
    back, onward = talk.send(b"[%b,%b]" % (ping, call(2, "envelope_read", {"handle": "x"})))
    assert onward == [b"[%b]" % ping]
    assert json.loads(back[0])["id"] == 2
    back, onward = talk.send(b"[%b]" % call(3, "envelope_read", {"handle": "x"}))
    assert (len(back), onward) == (1, [])

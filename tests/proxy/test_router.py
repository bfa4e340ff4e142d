"""One client and many servers, in memory: what goes where, and what the client sees of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from mcp_envelope.config import Settings
from mcp_envelope.gateway import Gateway
from mcp_envelope.proxy.catalogue import Offer, named, prefixes
from mcp_envelope.proxy.interceptor import LOGIN_NEEDED, Interceptor
from mcp_envelope.proxy.multiplexer import SUBSCRIPTION
from mcp_envelope.proxy.reads import Work
from mcp_envelope.proxy.router import Router

from .conversation import META
from .harness import ROWS, call, frame, request, result, rows, texts, tool, typed

_STATELESS = json.loads(b"{%b}" % META)


_CHANGED = frame({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class _Memory:
    def __init__(self) -> None:
        self.offers: dict[tuple[str, str], Offer] = {}

    def load(self, server: str, era: str) -> Offer | None:
        return self.offers.get((server, era))

    def save(self, server: str, era: str, offer: Offer) -> None:
        self.offers[server, era] = offer


class _Server:
    """Answers the gateway's own requests; what the client sends is for the test to answer."""

    def __init__(self, *tools: dict[str, Any], **more: Any) -> None:
        self.lists: dict[str, list[Any]] = {"tools": list(tools), "prompts": [], "resources": [], **more}
        self.capabilities: dict[str, Any] = {name: {} for name, each in self.lists.items() if each}
        self.capabilities.pop("resourceTemplates", None)
        self.instructions = ""
        self.is_stateless = False
        self.is_silent = False
        # Whether it says that its tools have changed, as soon as it may say something.
        self.is_hasty = False
        self.told: list[Any] = []

    def answer(self, message: Any) -> Any:
        method = message["method"]
        if method == "initialize":
            told = {"protocolVersion": "2025-06-18", "capabilities": self.capabilities}
            return {**told, "instructions": self.instructions} if self.instructions else told
        if method == "server/discover" and self.is_stateless:
            return {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
        key = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
        return {key: self.lists[key]} if method.endswith("/list") and key in self.lists else None


class Many:
    """A client, a gateway and these servers."""

    def __init__(
        self, folder: Path, servers: dict[str, _Server], memory: _Memory | None = None, **more: Any
    ) -> None:
        self.servers = servers
        self.memory = memory or _Memory()
        settings = Settings(None, {"MCP_ENVELOPE_TOKENS": "400"}, start=folder)

        def interceptor(name: str) -> Interceptor:
            vault = str(folder / "vault.db")
            return Interceptor(Gateway(settings, vault=vault, ledger=False, server=name, prefix=f"{name}__"))

        self.router = Router(
            {name: interceptor(name) for name in servers},
            interceptor("gateway"),
            self.memory,
            {"name": "gateway", "version": "0"},
            **more,
        )
        # What each server was sent that is not the gateway's own, as bytes, and which were started and ended.
        self.sent: list[tuple[str, bytes]] = []
        self.started: list[str] = []
        self.ended: list[str] = []

    def send(self, data: bytes) -> list[bytes]:
        """From the client: what comes back, the gateway's own talk with the servers included."""
        later: list[Work] = []
        back = self._carry(self.router.from_client(data, None, later))
        return [*back, *(each for work in later for each in self._carry(self.router.done(work)))]

    def reply(self, server: str, data: bytes) -> list[bytes]:
        return self._carry(self.router.from_server(server, data))

    def _carry(self, moves: Any) -> list[bytes]:
        back = [*moves.to_client]
        self.ended += moves.closed
        for server, data in moves.to_servers:
            scripted, message = self.servers[server], json.loads(data)
            scripted.told.append(message)
            if message.get("method") in ("initialize", "server/discover"):
                self.started.append(server)
            if scripted.is_hasty and message.get("method") == "notifications/initialized":
                back += self.reply(server, _CHANGED)
            if not str(message.get("id", "")).startswith("mcp-envelope-"):
                if message.get("method") != "notifications/initialized":
                    self.sent.append((server, data))
            elif not scripted.is_silent:
                answer = scripted.answer(message)
                error = {"code": -32601, "message": "Method not found"}
                outcome = {"error": error} if answer is None else {"result": answer}
                back += self.reply(server, frame({"jsonrpc": "2.0", "id": message["id"], **outcome}))
        return back

    def ask(self, data: bytes) -> Any:
        [back] = self.send(data)
        return json.loads(back)

    def meet(self) -> Any:
        info = {"name": "tests", "version": "1"}
        hello = request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        met = self.ask(hello)["result"]
        assert self.send(frame({"jsonrpc": "2.0", "method": "notifications/initialized"})) == []
        return met

    def names(self, kind: str = "tools") -> list[str]:
        return [each["name"] for each in self.ask(request("l", f"{kind}/list"))["result"][kind]]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    servers = {
        "git": _Server(tool("log"), tool("rows", ROWS)),
        "wiki": _Server(
            tool("log"),
            tool("find"),
            prompts=[{"name": "ask"}],
            resources=[{"uri": "wiki://home", "name": "home"}],
            resourceTemplates=[{"uriTemplate": "wiki://page/{name}", "name": "page"}],
        ),
        "files": _Server(tool("read"), resources=[{"uri": "file:///a", "name": "a"}]),
    }
    made = Many(tmp_path, servers)
    made.meet()
    made.names()
    return made


def _is_own(message: Any) -> bool:
    return str(message.get("id", "")).startswith("mcp-envelope-")


# -- names ----------------------------------------------------------------------------------------------------


def test_nothing_is_said_before_the_handshake_is_answered(tmp_path: Path) -> None:
    many = Many(tmp_path, {"git": _Server(tool("log"))})
    many.servers["git"].is_hasty = True
    many.meet()
    assert many.names() == ["git__log", "envelope_read"]


def test_tools_have_the_names_of_their_servers(many: Many) -> None:
    assert many.names() == [
        "git__log", "git__rows", "wiki__log", "wiki__find", "files__read", "envelope_read",
    ]  # fmt: skip
    assert many.names("prompts") == ["wiki__ask"]


def test_short_names_where_they_are_unique(tmp_path: Path) -> None:
    servers = {"git": _Server(tool("log"), tool("rows")), "wiki": _Server(tool("log"))}
    many = Many(tmp_path, servers, short=True)
    many.meet()
    assert many.names() == ["git__log", "rows", "wiki__log", "envelope_read"]
    many.send(call(1, "rows"))
    assert [(server, json.loads(data)["params"]["name"]) for server, data in many.sent] == [("git", "rows")]


def test_no_two_names_are_the_same() -> None:
    assert prefixes(["a b", "a.b", "é", "ok-1"]) == {"a b": "a_b", "a.b": "a_b_2", "é": "_", "ok-1": "ok-1"}
    both = named({"a": ["b__c", "d"], "a__b": ["c", "c"]}, {"a": "a", "a__b": "a__b"}, False)
    assert both.targets == {"a__b__c": ("a", "b__c"), "a__d": ("a", "d"), "a__b__c_2": ("a__b", "c")}


# -- calls ----------------------------------------------------------------------------------------------------


def test_a_call_goes_to_its_server_and_its_small_result_comes_back_as_it_is(many: Many) -> None:
    assert many.send(call("x", "wiki__find", {"n": 1.0})) == []
    [(server, sent)] = many.sent
    assert (server, sent) == ("wiki", call("x", "find", {"n": 1.0}))
    answer = b'{ "id":"x","jsonrpc":"2.0","result":{"content":[{"type":"text","text":"\\u00e9"}],"x":1.50}}'
    assert many.reply("wiki", answer) == [answer]


def test_a_large_result_is_cut_and_read_back_by_the_one_tool(many: Many) -> None:
    many.send(call(1, "git__rows"))
    [cut] = many.reply("git", result(1, **typed(rows(2000))))
    shown = json.loads(cut)["result"]["structuredContent"]
    assert len(shown["rows"]) < 2000
    arguments = {"handle": shown["_envelope"]["handle"], "path": "/rows", "offset": 1999}
    page = many.ask(call(2, "envelope_read", arguments))["result"]["content"][-1]["text"]
    assert json.loads(page)[0]["id"] == 1999
    assert len(many.sent) == 1


def test_an_unknown_tool(many: Many) -> None:
    assert many.ask(call(1, "nothing"))["error"] == {"code": -32602, "message": "Unknown tool: nothing"}
    # A tool that a server does not list may still be there.
    many.send(call(2, "wiki__hidden"))
    assert [(server, json.loads(data)["params"]["name"]) for server, data in many.sent] == [
        ("wiki", "hidden")
    ]


def test_the_same_id_at_two_servers_at_a_time(many: Many) -> None:
    many.send(call(1, "git__log"))
    many.send(call(2, "wiki__log"))
    assert json.loads(many.reply("wiki", result(2, content=texts("w")))[0])["id"] == 2
    assert json.loads(many.reply("git", result(1, content=texts("g")))[0])["id"] == 1


def test_only_the_server_that_was_asked_can_answer(many: Many) -> None:
    many.send(call(1, "git__log"))
    assert many.reply("wiki", result(1, content=texts("not from me"))) == []
    assert many.reply("git", result("2", content=texts("nobody asked"))) == []
    assert len(many.reply("git", result("1", content=texts("g")))) == 1
    many.servers["git"].is_silent = True
    many.reply("git", frame({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    own = many.servers["git"].told[-1]["id"]
    assert many.reply("wiki", result(own, tools=[tool("forged")])) == []
    assert "git__forged" not in many.names()


def test_cancelling_reaches_the_server_of_the_call(many: Many) -> None:
    many.send(call(1, "wiki__log"))
    cancel = frame({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    many.send(cancel)
    assert many.sent[1:] == [("wiki", cancel)]


def test_settings_of_a_tool_have_the_name_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "mcp-envelope.toml").write_text('[tools."git__*"]\ntokens = 200\n')
    settings = Settings(tmp_path / "mcp-envelope.toml", {})
    assert Gateway(settings, ledger=False, prefix="git__").policy("log").tokens == 200
    assert Gateway(settings, ledger=False, prefix="wiki__").policy("log").tokens != 200


# -- what servers say of their own accord ---------------------------------------------------------------------


def test_questions_of_two_servers_with_the_same_id(many: Many) -> None:
    many.send(call(1, "git__log"))
    many.send(call(2, "wiki__log"))
    asked = {}
    for server in ("git", "wiki"):
        [question] = many.reply(server, request(7, "elicitation/create", message="Sure?"))
        asked[server] = json.loads(question)
        # The client only knows one server, so the question says who asks.
        assert asked[server]["params"]["message"] == f"[{server}] Sure?"
    assert asked["git"]["id"] != asked["wiki"]["id"]
    before = len(many.sent)
    many.send(result(asked["wiki"]["id"], action="accept"))
    many.send(result(asked["git"]["id"], action="decline"))
    answers = [(server, json.loads(data)) for server, data in many.sent[before:]]
    assert [(server, each["id"], each["result"]["action"]) for server, each in answers] == [
        ("wiki", 7, "accept"),
        ("git", 7, "decline"),
    ]
    # Nobody waits for a second answer.
    many.send(result(asked["git"]["id"], action="accept"))
    assert len(many.sent) == before + 2


def test_progress_and_log_messages_pass(many: Many) -> None:
    many.send(call(1, "git__log", _meta={"progressToken": "p"}))
    for method, params in (("progress", {"progressToken": "p", "progress": 1}), ("message", {"data": 1e3})):
        told = frame({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})
        assert many.reply("git", told) == [told]


def test_a_list_that_changes_is_asked_for_again(many: Many) -> None:
    many.send(call(1, "git__log"))
    changed = frame({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    # Nothing differs, but the server says so.
    assert many.reply("git", changed) == [changed]
    many.servers["git"].lists["tools"].append(tool("fresh"))
    assert many.reply("git", changed) == [changed]
    assert "git__fresh" in many.names()
    assert len(many.memory.offers["git", "sessions"].tools) == 3


# -- prompts, resources, completions, logging -----------------------------------------------------------------


def test_prompts_and_completions(many: Many) -> None:
    many.send(request(1, "prompts/get", name="wiki__ask", arguments={"a": "1"}))
    ref = {"type": "ref/prompt", "name": "wiki__ask"}
    many.send(request(2, "completion/complete", ref=ref, argument={"name": "a", "value": "x"}))
    ref = {"type": "ref/resource", "uri": "wiki://page/{name}"}
    many.send(request(3, "completion/complete", ref=ref, argument={"name": "name", "value": "x"}))
    sent = [json.loads(data)["params"] for server, data in many.sent if server == "wiki"]
    assert [each.get("name") or each["ref"].get("name") for each in sent] == ["ask", "ask", None]
    assert many.ask(request(4, "prompts/get", name="none"))["error"]["code"] == -32602


def test_resources_go_where_they_are_listed(many: Many) -> None:
    for number, uri in enumerate(("file:///a", "wiki://home", "wiki://page/x y")):
        many.send(request(number, "resources/read", uri=uri))
    assert [server for server, _ in many.sent] == ["files", "wiki", "wiki"]
    many.send(request(9, "resources/subscribe", uri="file:///a"))
    assert many.sent[-1][0] == "files"
    updated = frame(
        {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///a"}}
    )
    assert many.reply("files", updated) == [updated]


def test_an_address_that_nobody_lists_is_tried_at_one_after_another(many: Many) -> None:
    many.send(request(1, "resources/read", uri="other://x"))
    first = many.sent[-1][0]
    missing = frame({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "not found"}})
    assert many.reply(first, missing) == []
    second = many.sent[-1][0]
    assert {first, second} == {"wiki", "files"}
    assert many.reply(second, missing) == [missing]


def test_the_log_level_is_told_to_whoever_is_there_and_whoever_comes(many: Many) -> None:
    for server in many.servers.values():
        server.capabilities["logging"] = {}
    many.send(call(1, "git__log"))
    many.reply("git", result(1, content=[]))
    assert many.ask(request(2, "logging/setLevel", level="debug"))["result"] == {}
    many.send(call(3, "wiki__log"))
    levels = {
        name: [each["params"]["level"] for each in server.told if each.get("method") == "logging/setLevel"]
        for name, server in many.servers.items()
    }
    assert levels["wiki"] == ["debug"]
    assert levels["files"] == []


def test_pings_and_unknown_methods_are_answered_here(many: Many) -> None:
    assert many.ask(request(1, "ping"))["result"] == {}
    assert many.ask(request(2, "com.example/unheard"))["error"]["code"] == -32601
    assert many.sent == []


# -- one handshake, and servers that are started when they are needed ------------------------------------------


def test_the_handshake_is_that_of_all(tmp_path: Path) -> None:
    wiki = _Server(tool("find"), prompts=[{"name": "ask"}])
    wiki.capabilities |= {"logging": {}, "resources": {"subscribe": True}}
    wiki.instructions = "Search first."
    met = Many(tmp_path, {"git": _Server(tool("log")), "wiki": wiki}).meet()
    assert met["capabilities"] == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": True},
    }
    assert met["instructions"] == "wiki: Search first."
    assert met["protocolVersion"] == "2025-06-18"


def test_what_is_remembered_starts_nobody(many: Many, tmp_path: Path) -> None:
    assert sorted(many.ended) == ["files", "git", "wiki"]
    again = Many(tmp_path, many.servers, many.memory)
    again.meet()
    assert len(again.names()) == 6
    assert again.started == []
    again.send(call(1, "git__log"))
    assert again.started == ["git"]
    assert again.ended == []


def test_a_server_that_is_started_is_asked_again(many: Many, tmp_path: Path) -> None:
    again = Many(tmp_path, many.servers, many.memory)
    again.meet()
    again.names()
    again.servers["git"].lists["tools"] = [tool("new")]
    [told] = again.send(call(1, "git__log"))
    assert json.loads(told)["method"] == "notifications/tools/list_changed"
    assert "git__new" in again.names()
    assert "git__log" not in again.names()


def test_a_call_waits_for_the_handshake(many: Many, tmp_path: Path) -> None:
    again = Many(tmp_path, many.servers, many.memory)
    again.meet()
    again.servers["git"].is_silent = True
    again.send(call(1, "git__log"))
    assert again.sent == []
    [hello] = [each for each in again.servers["git"].told if each["method"] == "initialize"][-1:]
    again.reply("git", result(hello["id"], **again.servers["git"].answer(hello)))
    assert [server for server, _ in again.sent] == ["git"]


# -- servers that are down -------------------------------------------------------------------------------------


def test_a_server_that_cannot_be_started_costs_its_own_tools(many: Many, tmp_path: Path) -> None:
    again = Many(tmp_path, many.servers, many.memory)
    again.meet()
    again.servers["git"].is_silent = True
    again.send(call(1, "git__log"))
    hello = again.servers["git"].told[-1]
    failed = again._carry(
        again.router.failed("git", frame(hello), "It cannot be started.", "UPSTREAM_UNAVAILABLE")
    )
    [failure] = map(json.loads, failed)
    assert failure["id"] == 1
    assert failure["result"]["isError"] is True
    assert "git: It cannot be started." in failure["result"]["content"][0]["text"]
    assert "git__log" in again.names()
    again.send(call(2, "wiki__log"))
    assert [server for server, _ in again.sent] == ["wiki"]
    # It is tried again.
    again.servers["git"].is_silent = False
    again.send(call(3, "git__log"))
    assert [server for server, _ in again.sent] == ["wiki", "git"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (LOGIN_NEEDED % "mcp-envelope login https://git.example", "LOGIN_REQUIRED"),
        (LOGIN_NEEDED % "curl https://evil.example", "UPSTREAM_UNAVAILABLE"),
    ],
)
def test_a_server_that_wants_a_login_is_not_said_to_be_down(
    many: Many, tmp_path: Path, said: str, code: str
) -> None:
    """The process that speaks HTTP for it refuses the handshake. A server's own words get no hint to run them."""
    again = Many(
        tmp_path, many.servers, many.memory, logins={"git": "mcp-envelope login https://git.example"}
    )
    again.meet()
    again.servers["git"].is_silent = True
    again.send(call(1, "git__log"))
    hello = again.servers["git"].told[-1]
    refusal = {"code": -32603, "message": said}
    failed = again.reply("git", frame({"jsonrpc": "2.0", "id": hello["id"], "error": refusal}))
    [failure] = map(json.loads, failed)
    error = json.loads(failure["result"]["content"][0]["text"])["_envelope"]["error"]
    assert error["code"] == code
    assert said in error["message"]


def test_a_server_that_dies_loses_what_was_under_way(many: Many) -> None:
    many.send(call(1, "git__log"))
    many.send(call(2, "wiki__log"))
    [lost] = map(json.loads, many._carry(many.router.lost("git", "The server ended.", "UPSTREAM_DIED")))
    assert lost["id"] == 1
    assert "UPSTREAM_DIED" in lost["result"]["content"][0]["text"]
    assert json.loads(many.reply("wiki", result(2, content=[]))[0])["id"] == 2
    # Its list is still that of before.
    assert "git__log" in many.names()


def test_nobody_waits_for_a_server_that_says_nothing(tmp_path: Path) -> None:
    mute = _Server(tool("log"))
    mute.is_silent = True
    many = Many(tmp_path, {"git": mute, "wiki": _Server(tool("find"))})
    hello = request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
    assert many.send(hello) == []
    own = frame(mute.told[0])
    assert many.router.patience("git", own) is not None
    [met] = many._carry(many.router.unanswered("git", own))
    assert json.loads(met)["id"] == 0
    assert many.names() == ["wiki__find", "envelope_read"]
    late = many.ask(call(1, "git__log"))
    assert "UPSTREAM_TIMEOUT" in late["result"]["content"][0]["text"]
    # It comes after all.
    mute.is_silent = False
    [told] = many.reply("git", result(mute.told[0]["id"], **mute.answer(mute.told[0])))
    assert json.loads(told)["method"] == "notifications/tools/list_changed"
    assert many.names() == ["git__log", "wiki__find", "envelope_read"]


# -- the stateless era -----------------------------------------------------------------------------------------


def _stateless(folder: Path) -> Many:
    servers = {"git": _Server(tool("log")), "wiki": _Server(tool("find"))}
    for server in servers.values():
        server.is_stateless = True
    return Many(folder, servers)


def test_the_stateless_era_if_all_speak_it(tmp_path: Path) -> None:
    many = _stateless(tmp_path)
    found = many.ask(request("d", "server/discover", **_STATELESS))["result"]
    assert found["supportedVersions"] == ["2026-07-28"]
    listed = many.ask(request("l", "tools/list", **_STATELESS))["result"]
    assert [each["name"] for each in listed["tools"]] == ["git__log", "wiki__find", "envelope_read"]
    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
    many.send(call("c", "git__log", **_STATELESS))
    assert many.sent[-1] == ("git", call("c", "log", **_STATELESS))
    # Our own requests say who asks, as every request of that era does.
    own = [each for each in many.servers["git"].told if _is_own(each)]
    assert all("io.modelcontextprotocol/protocolVersion" in each["params"]["_meta"] for each in own)


def test_the_older_era_if_one_does_not(tmp_path: Path) -> None:
    many = _stateless(tmp_path)
    many.servers["git"].is_stateless = False
    assert many.ask(request("d", "server/discover", **_STATELESS))["error"]["code"] == -32601
    assert many.meet()["protocolVersion"] == "2025-06-18"
    assert many.names() == ["git__log", "wiki__find", "envelope_read"]
    # Next time nobody has to be asked.
    again = Many(tmp_path, many.servers, many.memory)
    assert again.ask(request("d", "server/discover", **_STATELESS))["error"]["code"] == -32601
    again.meet()
    assert again.started == []


def test_one_caller_of_the_stateless_era_spoils_it_for_nobody(tmp_path: Path) -> None:
    many = _stateless(tmp_path)
    meta = _STATELESS["_meta"]
    version, capabilities = [name for name in meta if "Info" not in name]
    assert version.endswith("protocolVersion")
    wrong = {
        -32022: {**meta, version: "1999-01-01"},
        -32602: {name: meta[name] for name in meta if name != capabilities},
    }
    for code, each in wrong.items():
        assert many.ask(request("x", "tools/list", _meta=each))["error"]["code"] == code
    assert many.ask(request("x", "server/discover", _meta=wrong[-32022]))["error"]["data"] == {
        "supported": ["2026-07-28"],
        "requested": "1999-01-01",
    }
    many.ask(request("d", "server/discover", **_STATELESS))
    many.ask(request("l", "tools/list", **_STATELESS))
    assert many.ask(request("x", "tools/list"))["error"]["code"] == -32602
    many.servers["git"].capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    assert many.ask(request("x", "tasks/get", taskId="t", **_STATELESS))["error"]["code"] == -32601
    many.send(call("c", "git__log", **_STATELESS))
    many.send(request("x", "tasks/get", taskId="t", **_STATELESS))
    assert many.sent[-1] == ("git", request("x", "tasks/get", taskId="t", **_STATELESS))
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
        assert many.ask(request("x", method, **_STATELESS))["error"]["code"] == -32601
    listed = many.ask(request("l", "tools/list", **_STATELESS))["result"]
    assert [each["name"] for each in listed["tools"]] == ["git__log", "wiki__find", "envelope_read"]


def test_a_stream_that_listens_hears_of_all(tmp_path: Path) -> None:
    many = _stateless(tmp_path)
    many.ask(request("d", "server/discover", **_STATELESS))
    many.ask(request("l", "tools/list", **_STATELESS))
    wanted = {"toolsListChanged": True}
    acknowledged = many.ask(request("s", "subscriptions/listen", notifications=wanted, **_STATELESS))
    assert acknowledged["params"] == {"notifications": wanted, "_meta": {SUBSCRIPTION: "s"}}
    many.servers["git"].lists["tools"].append(tool("fresh"))
    [told] = many.send(call("c", "git__log", **_STATELESS))
    assert json.loads(told)["params"] == {"_meta": {SUBSCRIPTION: "s"}}
    # The servers' own acknowledgements stay here.
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {SUBSCRIPTION: "s"}},
    }
    assert many.reply("git", frame(note)) == []


def test_offers_differ_by_what_they_list() -> None:
    one = Offer(Raw(b"{}"), tools=[Raw(b'{"name":"a"}')])
    assert one.changed(Offer(Raw(b'{"x":1}'), tools=[Raw(b'{"name":"a"}')])) == []
    assert one.changed(Offer(Raw(b"{}"))) == ["tools"]

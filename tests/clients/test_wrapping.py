"""Configuration files as the clients have them, wrapped and unwrapped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_envelope.clients import config_file, wrapping
from mcp_envelope.clients.config_file import NotConfig
from mcp_envelope.clients.server_entry import Launch
from mcp_envelope.clients.wrapping import WrapOptions, WrapPlan

LAUNCH = Launch(("mcp-envelope",))

CLAUDE_DESKTOP = """\
{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/home/me/Documents"
      ]
    },
    "sqlite": { "command": "uvx", "args": ["sqlite-mcp"], "env": { "DB": "x" } }
  }
}
"""
CLAUDE_DESKTOP_WRAPPED = """\
{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "mcp-envelope",
      "args": [
        "proxy",
        "--",
        "npx",
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "/home/me/Documents"
      ]
    },
    "sqlite": { "command": "mcp-envelope", "args": ["proxy", "--", "uvx", "sqlite-mcp"], "env": { "DB": "x" } }
  }
}
"""
CLAUDE_CODE = """\
{
  "numStartups": 41,
  "oauthAccount": {"emailAddress": "me@example.com"},
  "mcpServers": {
    "playwright": {"type": "stdio", "command": "npx", "args": ["@playwright/mcp@latest"], "env": {}},
    "notion": {"type": "http", "url": "https://mcp.notion.com/mcp"}
  },
  "projects": {
    "/home/me/site": {
      "history": [{"display": "command: npx"}],
      "mcpServers": {"db": {"type": "stdio", "command": "db-mcp", "args": [], "env": {"URL": "postgres://x"}}}
    },
    "/home/me/other": {"mcpServers": {}}
  }
}
"""
VSCODE = """\
{
\t// Asked once, kept by the editor.
\t"inputs": [
\t\t{ "type": "promptString", "id": "key", "description": "API key", "password": true },
\t],
\t"servers": {
\t\t"github": {
\t\t\t"type": "http",
\t\t\t"url": "https://api.githubcopilot.com/mcp/", // theirs
\t\t\t"headers": {
\t\t\t\t"Authorization": "Bearer ${input:key}",
\t\t\t},
\t\t},
\t\t"perplexity": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "server-perplexity-ask"],
\t\t\t"env": { "PERPLEXITY_API_KEY": "${input:key}" },
\t\t},
\t},
}
"""
CURSOR = '{"mcpServers":{"a":{"command":"node","args":["s.js"],"envFile":".env"},"b":{"url":"https://b.example/sse"}}}'
WINDSURF = """\
{
  "mcpServers": {
    "git": { "command": "uvx", "args": ["mcp-server-git"] },
    "hub": { "serverUrl": "https://api.example.com/mcp", "headers": { "X-Key": "${env:TOKEN}" } }
  }
}
"""
GEMINI = """\
{
  "theme": "GitHub",
  "mcpServers": {
    "git": { "command": "uvx", "cwd": "./srv", "timeout": 30000, "trust": false },
    "hub": { "httpUrl": "https://api.example.com/mcp/", "headers": { "X-Key": "$TOKEN" }, "timeout": 5000 },
    "old": { "url": "https://api.example.com/sse", "type": "sse" }
  }
}
"""
CODEX = """\
model = "gpt-5-codex"   # the usual

[mcp_servers.context7]
command = "npx"         # needs node
args = ["-y", "@upstash/context7-mcp"]
startup_timeout_sec = 20.0

[mcp_servers.context7.env]
MY_KEY = 'value'

# remote ones
[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }
enabled_tools = ["a", "b"]

[mcp_servers.bare]
command = "bare-mcp"
[projects."/home/me/site"]
trust_level = "trusted"
"""
OPENCODE = """\
{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    // the servers here
    "git": { "type": "local", "command": ["uvx", "mcp-server-git"], "environment": { "A": "b" }, "enabled": true },
    "files": {
      "type": "local",
      "command": [
        "npx",
        "-y",
        "server-filesystem"
      ]
    },
  }
}
"""
ZED = """\
{
  // Zed settings
  "theme": "One Dark",
  "context_servers": {
    "fs": { "source": "custom", "command": "npx", "args": ["-y", "fs"], "env": {} }
  }
}
"""
GOOSE = """\
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  fetch: # what I like best
    enabled: true
    type: stdio
    name: fetch
    cmd: uvx
    args:
    - mcp-server-fetch
    - --ignore-robots-txt
    envs: {}
    env_keys:
    - TOKEN
    timeout: 300
  'time':
    enabled: false
    type: stdio
    name: time
    cmd: "/usr/bin/time-mcp"
    args: []
    description: ''
GOOSE_MODE: auto
"""
CONTINUE = """\
{
  // of Playwright
  "command": "npx",
  "args": ["@playwright/mcp@latest"],
  "env": { "A": "b" }
}
"""
CONTINUE_REMOTE = '{"type": "sse", "url": "https://mcp.example.com/sse", "headers": {"X-Key": "k"}}'
FILES = {
    "goose": (GOOSE, "yaml"),
    "continue": (CONTINUE, "json"),
    "continue, remote": (CONTINUE_REMOTE, "json"),
    "opencode": (OPENCODE, "json"),
    "zed": (ZED, "json"),
    "claude-desktop": (CLAUDE_DESKTOP, "json"),
    "claude-code": (CLAUDE_CODE, "json"),
    "vscode": (VSCODE, "json"),
    "cursor": (CURSOR, "json"),
    "gemini": (GEMINI, "json"),
    "windsurf": (WINDSURF, "json"),
    "codex": (CODEX, "toml"),
}


def wrap(text: str, kind: str, wish: WrapOptions | None = None) -> WrapPlan:
    wish = wish or WrapOptions(LAUNCH, with_remote=True)
    document = config_file.read(text.encode(), f"x.{kind}")
    return wrapping.wrap(document, wish, lambda name: True, lambda url: "secret" in url)


def unwrap(text: str, kind: str, backup: str | None = None) -> WrapPlan:
    kept = None if backup is None else config_file.read(backup.encode(), f"x.{kind}")
    return wrapping.unwrap(config_file.read(text.encode(), f"x.{kind}"), kept, lambda name: True)


def found(text: str, kind: str) -> dict[str, Any]:
    return {server.label: server.value for server in config_file.read(text.encode(), f"x.{kind}").servers()}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_there_and_back(client: str, newline: str) -> None:
    text, kind = FILES[client]
    text = text.replace("\n", newline)
    plan = wrap(text, kind)
    assert not plan.skipped
    assert not plan.remote
    assert plan.text.count("\n") == plan.text.count(newline)
    assert unwrap(plan.text, kind).text == text
    assert unwrap(plan.text, kind, backup=text).text == text
    assert not wrap(plan.text, kind).is_change


def test_claude_desktop() -> None:
    assert wrap(CLAUDE_DESKTOP, "json").text == CLAUDE_DESKTOP_WRAPPED


def test_claude_code_has_servers_in_its_projects_too() -> None:
    plan = wrap(CLAUDE_CODE, "json", WrapOptions(LAUNCH))
    assert plan.changed == ["playwright", "db (/home/me/site)"]
    assert plan.remote == ["notion"]
    value = found(plan.text, "json")["db (/home/me/site)"]
    assert value["args"] == ["proxy", "--", "db-mcp"]
    assert value["type"] == "stdio"


def test_vscode_keeps_inputs_and_placeholders() -> None:
    value = found(wrap(VSCODE, "json").text, "json")
    assert value["github"] == {
        "command": "mcp-envelope",
        "args": [
            *("proxy", "--transport", "http", "--header-env", "Authorization=MCP_ENVELOPE_HEADER_1"),
            *("--url", "https://api.githubcopilot.com/mcp/"),
        ],
        "env": {"MCP_ENVELOPE_HEADER_1": "Bearer ${input:key}"},
    }
    assert value["perplexity"]["args"] == ["proxy", "--", "npx", "-y", "server-perplexity-ask"]
    assert value["perplexity"]["env"] == {"PERPLEXITY_API_KEY": "${input:key}"}


def test_opencode_has_program_and_arguments_in_one_list() -> None:
    plan = wrap(OPENCODE, "json")
    value = found(plan.text, "json")
    assert value["git"]["command"] == ["mcp-envelope", "proxy", "--", "uvx", "mcp-server-git"]
    assert plan.text.count("\n") == OPENCODE.count("\n") + 3, "one word on each line, as before"
    updated = wrap(plan.text, "json", WrapOptions(LAUNCH, ("/opt/mcp-envelope",), {"--tokens": "900"}))
    assert updated.updated == ["git", "files"]
    value = found(updated.text, "json")
    assert value["files"]["command"][:5] == ["/opt/mcp-envelope", "proxy", "--tokens", "900", "--"]
    assert unwrap(updated.text, "json").text == OPENCODE
    remote = '{"mcp": {"r": {"type": "remote", "url": "https://x"}, "servers": {"v": {"command": "v"}}}}'
    plan = wrap(remote, "json")
    assert plan.changed == ["v"]
    assert plan.skipped == [("r", "has a transport that the proxy does not support")]


def test_goose_has_words_of_its_own() -> None:
    plan = wrap(GOOSE, "yaml")
    value = found(plan.text, "yaml")
    assert plan.changed == ["fetch", "time"]
    assert value["fetch"]["cmd"] == value["time"]["cmd"] == "mcp-envelope"
    assert value["fetch"]["args"] == ["proxy", "--", "uvx", "mcp-server-fetch", "--ignore-robots-txt"]
    assert value["time"]["args"] == ["proxy", "--", "/usr/bin/time-mcp"]
    assert "command" not in value["fetch"]
    updated = wrap(plan.text, "yaml", WrapOptions(LAUNCH, ("/opt/mcp-envelope",), {"--tokens": "900"}))
    assert found(updated.text, "yaml")["fetch"]["cmd"] == "/opt/mcp-envelope"
    assert unwrap(updated.text, "yaml").text == GOOSE
    remote = (
        "extensions: {r: {enabled: true, type: streamable_http, name: r, uri: 'https://x/mcp', envs: {}}}"
    )
    assert wrap(remote, "yaml", WrapOptions(LAUNCH)).remote == ["r"]
    [(name, reason)] = wrap(remote, "yaml").skipped
    assert (name, "by hand" in reason) == ("r", True)


def test_a_file_may_be_a_server() -> None:
    plan = wrap(CONTINUE, "json")
    assert plan.changed == ["the server"]
    assert found(plan.text, "json")["the server"]["args"] == ["proxy", "--", "npx", "@playwright/mcp@latest"]
    told = found(wrap(CONTINUE_REMOTE, "json").text, "json")["the server"]
    assert told["args"][-2:] == ["--url", "https://mcp.example.com/sse"]
    assert told["env"] == {"MCP_ENVELOPE_HEADER_1": "k"}


def test_windsurf_calls_a_url_server_url() -> None:
    value = found(wrap(WINDSURF, "json").text, "json")
    assert value["hub"]["args"][:2] == ["proxy", "--transport=auto"]
    assert value["hub"]["args"][-2:] == ["--url", "https://api.example.com/mcp"]


def test_gemini_says_what_its_urls_mean() -> None:
    value = found(wrap(GEMINI, "json").text, "json")
    assert value["hub"]["args"][:2] == ["proxy", "--transport=http"]
    assert value["old"]["args"] == ["proxy", "--transport", "sse", "--url", "https://api.example.com/sse"]
    assert value["git"]["args"] == ["proxy", "--", "uvx"]


def test_codex_passes_a_token_on_by_the_name_of_its_variable() -> None:
    value = found(wrap(CODEX, "toml").text, "toml")
    assert value["figma"] == {
        "command": "mcp-envelope",
        "args": [
            *("proxy", "--header-env", "X-Figma-Region=MCP_ENVELOPE_HEADER_1"),
            *("--bearer-env", "FIGMA_TOKEN", "--url", "https://mcp.figma.com/mcp"),
        ],
        "env_vars": ["FIGMA_TOKEN"],
        "env": {"MCP_ENVELOPE_HEADER_1": "us-east-1"},
        "enabled_tools": ["a", "b"],
    }


@pytest.mark.parametrize("client", FILES)
def test_what_somebody_adds_meanwhile_stays(client: str) -> None:
    text, kind = FILES[client]
    plan = wrap(text, kind)
    if kind == "toml":
        added = '\n[mcp_servers.new]\ncommand = "new"\n'
        assert unwrap(plan.text + added, kind, backup=text).text == text + added
    else:
        key = '"mcp"' if client == "opencode" else "ervers"
        head, mark, tail = plan.text.partition(key)
        now = head + mark + tail.replace("{", '{"new": {"command": "new"}, ', 1)
        head, mark, tail = text.partition(key)
        assert unwrap(now, kind, backup=text).text == head + mark + tail.replace(
            "{", '{"new": {"command": "new"}, ', 1
        )


def test_a_file_that_a_program_wrote_anew_is_unwrapped_all_the_same() -> None:
    for client, (text, kind) in FILES.items():
        if kind != "json":
            continue
        document = config_file.read(wrap(text, kind).text.encode(), "x.json")
        again = json.dumps(document.value, sort_keys=True, indent=1)
        before, after = found(text, kind), found(unwrap(again, kind, backup=text).text, kind)
        for name, value in before.items():
            value = {key: inner for key, inner in value.items() if inner != []}
            assert after[name] == value, (client, name)


SPELLINGS = [
    {"command": "/usr/local/bin/mcp-envelope", "args": ["proxy", "--", "a"]},
    {"command": "C:\\Tools\\mcp-envelope.EXE", "args": ["proxy", "--tokens", "5", "--", "a"]},
    {"command": "/usr/bin/python3.12", "args": ["-m", "mcp_envelope", "proxy", "--", "a"]},
    {"command": "uvx", "args": ["--from", "mcp-envelope==1", "mcp-envelope", "proxy", "--", "a"]},
]


@pytest.mark.parametrize("entry", SPELLINGS)
def test_a_proxy_is_known_whatever_its_path(entry: dict[str, Any]) -> None:
    text = json.dumps({"mcpServers": {"x": entry}})
    plan = wrap(text, "json")
    assert plan.already == ["x"]
    assert not plan.is_change
    assert found(unwrap(text, "json").text, "json")["x"] == {"command": "a"}
    updated = wrap(text, "json", WrapOptions(LAUNCH, settings={"--bytes": "900"}))
    assert updated.updated == ["x"]
    value = found(updated.text, "json")["x"]
    assert value["command"] == entry["command"]
    assert value["args"][-4:] == ["--bytes", "900", "--", "a"]
    assert "--tokens" not in value["args"]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "my-mcp-envelope", "args": ["proxy", "--", "a"]},
        {"command": "node", "args": ["mcp-envelope", "proxy", "--", "a"]},
        {"command": "mcp-envelope", "args": ["seal"]},
        {"command": "uv", "args": ["run", "x", "--", "mcp-envelope", "proxy"]},
    ],
)
def test_what_only_looks_like_a_proxy_is_wrapped(entry: dict[str, Any]) -> None:
    plan = wrap(json.dumps({"mcpServers": {"x": entry}}), "json")
    assert plan.changed == ["x"]


def test_another_command_is_set_if_it_is_named() -> None:
    once = wrap(CODEX, "toml").text
    again = wrap(once, "toml", WrapOptions(LAUNCH, program=("/opt/mcp-envelope",)))
    assert len(again.updated) == 3
    assert again.text.count('command = "/opt/mcp-envelope"') == 3
    assert unwrap(again.text, "toml").text == CODEX


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"command": ["npx", 1]}, "command that is neither a string nor a list of strings"),
        ({"command": ["npx"], "args": []}, "arguments both in its command and in args"),
        ({"command": ""}, "command that is neither a string nor a list of strings"),
        ({"command": ["", "a"]}, "neither a string nor a list"),
        ({"command": "a", "args": 1}, "not a list of strings"),
        ({"command": "a", "args": "b"}, "not a list of strings"),
        ({"command": "a", "args": [1]}, "not a list of strings"),
        ({"command": "a", "url": "https://x"}, "both a command and a URL"),
        ({}, "neither a command nor a URL"),
        ({"url": 5}, "not a string"),
        ({"httpUrl": "https://x", "type": "http"}, "both httpUrl and type"),
        ({"serverUrl": "https://x", "type": "http"}, "both serverUrl and type"),
        ({"serverUrl": "https://x", "url": "https://x"}, "more than one URL"),
        ({"url": "https://secret@x"}, "secret in its URL"),
        ({"url": "https://x", "oauth": {}}, "has oauth"),
        ({"url": "https://x", "headersHelper": "x"}, "has headersHelper"),
        ({"url": "https://x", "env": {}}, "both a URL and env"),
        ({"url": "https://x", "type": "ws"}, "does not support"),
        ({"url": "https://x", "type": ["http"]}, "does not support"),
        ({"url": "https://x", "headers": {"A": 1}}, "not strings"),
        ({"url": "https://x", "headers": {"A=B": "1"}}, "an invalid name"),
    ],
)
def test_what_cannot_be_wrapped_is_left(entry: dict[str, Any], reason: str) -> None:
    text = json.dumps({"mcpServers": {"odd": entry, "ok": {"command": "a"}}})
    plan = wrap(text, "json")
    assert plan.changed == ["ok"]
    [(label, said)] = plan.skipped
    assert label == "odd"
    assert reason in said
    assert found(plan.text, "json")["odd"] == entry


def test_codex_headers_from_the_environment_are_left_to_codex() -> None:
    plan = wrap('[mcp_servers.x]\nurl = "https://x"\nenv_http_headers = { A = "B" }\n', "toml")
    assert not plan.is_change
    assert plan.skipped == [("x", "has env_http_headers, which only the client can handle")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"env": {"MCP_ENVELOPE_HEADER_1": "v", "MORE": "w"}}, "does not match its headers"),
        ({"env": {}}, "does not match its headers"),
        ({"url": "https://y"}, "both a command and a URL"),
        ({"args": ["proxy"]}, "unknown arguments"),
        ({"args": ["proxy", "--"]}, "unknown arguments"),
    ],
)
def test_what_cannot_be_unwrapped_is_left(change: dict[str, Any], reason: str) -> None:
    text = json.dumps({"servers": {"x": {"url": "https://x", "headers": {"A": "v"}}}})
    now = json.loads(wrap(text, "json").text)
    now["servers"]["x"].update(change)
    plan = unwrap(json.dumps(now), "json")
    assert not plan.is_change
    assert reason in plan.skipped[0][1]


def test_a_proxy_of_ones_own_outlives_wrap_and_unwrap() -> None:
    text = '{"servers": {"mine": {"command": "mcp-envelope", "args": ["proxy", "--", "a"]}, "b": {"command": "b"}}}'
    now = wrap(text, "json").text
    assert unwrap(now, "json", backup=text).text == text
    added = now.replace("}}}", '}, "c": {"command": "c"}}}').replace("]}, ", "]},  ")
    assert "mcp-envelope" in unwrap(added, "json", backup=text).text


def test_of_equal_keys_the_last_one_counts() -> None:
    old = '{"a": {"command": "x"}}'
    text = f'{{"servers": {old}, "servers": {{"b": {old}, "b": {{"command": "q", "command": "r"}}}}}}'
    plan = wrap(text, "json")
    assert plan.changed == ["b"]
    assert found(plan.text, "json")["b"]["args"] == ["proxy", "--", "r"]
    assert unwrap(plan.text, "json").text == text


def test_what_would_mean_something_else_is_refused() -> None:
    # With `type` renamed, the other `type` would come to light.
    text = (
        '{"mcpServers": {"odd": {"type": "sse", "url": "https://x", "type": "http"}, "ok": {"command": "a"}}}'
    )
    with pytest.raises(wrapping.Unsafe, match=r"^odd$"):
        wrap(text, "json")


def test_types_by_other_names_come_back_with_the_backup() -> None:
    text = '{"mcpServers": {"x": {"type": "streamable-http", "url": "https://x"}}}'
    now = wrap(text, "json").text
    assert '"--transport", "http"' in now
    assert unwrap(now, "json", backup=text).text == text
    assert found(unwrap(now, "json").text, "json")["x"]["type"] == "http"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('{"mcpServers": {"a": }}', "json", "line 1, column 22: not JSON"),
        ('{\n  "a": 1\n  "b": 2}', "json", "line 3, column 3: not JSON"),
        ('{"a": NaN}', "json", "there is no NaN"),
        ("[" * 100_000, "json", "nested too deeply"),
        ("a = \n", "toml", "line 1, column 5: not TOML"),
        ("a = 1\na = 2\n", "toml", "line 2, column 6: not TOML"),
    ],
)
def test_what_cannot_be_parsed_is_told_with_its_place(text: str, kind: str, said: str) -> None:
    with pytest.raises(NotConfig) as caught:
        config_file.read(text.encode(), f"x.{kind}")
    assert said in str(caught.value)


def test_the_format_is_told_by_the_content_if_the_name_does_not() -> None:
    assert config_file.read(b" {}", "config").syntax.name == "JSON"
    assert config_file.read(b"// x\n{}", "config").syntax.name == "JSON"
    assert config_file.read(b"[mcp_servers.a]\ncommand = 'x'", "config").syntax.name == "TOML"
    with pytest.raises(NotConfig, match="line 2: not UTF-8"):
        config_file.read(b"\n\xff", "config")
    assert config_file.read(b"[1]", "x.json").servers() == []
    assert (
        config_file.read(b'{"mcpServers": [], "mcp": {"servers": {"a": {}}}}', "x.json").servers()[0].name
        == "a"
    )

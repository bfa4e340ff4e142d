"""The demo: real servers behind the proxy, before and after.

Strategy: the official client makes each call twice, directly and through `mcp-envelope proxy`, and the result
is checked independently: with the meter, the client's schema validation and the original. Nothing needs a
network; the git server works on a repository that is created for the demo. Colour and width follow the
terminal; in a pipe, the output is plain.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from ..budget import meter_named

TICKETS = [sys.executable, str(Path(__file__).parent / "tickets.py")]
LIMIT = 2000
# The most lines of what the envelope says at one place; it may describe a list on a whole screen.
LONGEST = 4

PRETTY = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
WIDTH = max(48, min(shutil.get_terminal_size((88, 24)).columns, 110))
UNICODE = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
BAR, RULE, TICK, CROSS = ("█", "─", "✓", "✗") if UNICODE else ("#", "-", "ok:", "NO:")

broken: list[str] = []


def run() -> bool:
    """Show everything, and return whether every promise was kept."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        # The vault disappears with the folder, and your own settings don't affect the demo.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MCP_ENVELOPE_")
        }
        environment |= {"MCP_ENVELOPE_VAULT": str(room / "vault.db"), "XDG_STATE_HOME": str(room / "state")}
        asyncio.run(show_tickets(environment))
        asyncio.run(show_git(room, environment))
        asyncio.run(show_crash(environment))
    print()
    if broken:
        print(paint("31", f"Broken promises: {', '.join(broken)}"))
        return False
    print(paint("1", "Try it: ") + f"{command_name()} proxy -- YOUR SERVER")
    print(f"        {command_name()} wrap --help")
    return True


def command_name() -> str:
    """How to call this program here: in a clone, by its path."""
    here = Path(sys.executable).with_name("mcp-envelope")
    inside = here.is_relative_to(Path.cwd()) and not shutil.which("mcp-envelope")
    return os.path.relpath(here) if inside else "mcp-envelope"


async def show_tickets(environment: dict[str, str]) -> None:
    title("A typed result: 1,500 tickets, whose schema allows no additional properties")
    async with client(TICKETS, environment) as direct:
        whole = (await direct.call_tool("list_tickets", {})).structured_content
    async with client(proxied(TICKETS), environment) as through:
        show_command(TICKETS)
        await through.list_tools()
        # The client validates the structure against the listed schema, and would raise if it were invalid.
        result = await through.call_tool("list_tickets", {})
        shown = result.structured_content
        sizes(whole, shown)
        outline(shown)
        check("each lane is within the budget", within(result))
        check("valid under the listed schema, according to the client", not result.is_error)
        kept = len(shown["tickets"])
        check("what is shown is unchanged", shown["tickets"] == whole["tickets"][:kept])
        await read_all(through, shown["_envelope"]["handle"], whole["tickets"], kept)


async def read_all(through: Client, handle: str, tickets: list[Any], kept: int) -> None:
    """Read the rest by page, by search and by query, and make a mistake to see its hint."""
    print()
    offset, pages, read = kept, 0, []
    while offset < len(tickets):
        answer = await ask(through, handle, path="/tickets", offset=offset, quiet=pages > 0)
        page = json.loads(answer[-1])
        read += page
        offset, pages = offset + len(page), pages + 1
        if pages == 1:
            tell(answer[0])
    print(paint("2", f"  … and so on, {pages} pages"))
    check("pages joined end to end match the original", read == tickets[kept:])
    wanted = tickets[-7]
    print()
    found = json.loads((await ask(through, handle, grep=wanted["body"][:40]))[-1])
    print(clip(f"  {json.dumps(found[0])}"))
    check("the search says where it is", found[0]["path"] == f"/tickets/{len(tickets) - 7}/body")
    print()
    query = f"tickets[?id == `{wanted['id']}`].title"
    titles = json.loads((await ask(through, handle, query=query))[-1])
    print(f"  {json.dumps(titles)}")
    check("the query selects it", titles == [wanted["title"]])
    print()
    failure = json.loads((await ask(through, handle, path="/ticket"))[0])["_envelope"]["error"]
    for name in ("code", "message", "hint"):
        tell(f"{name}: {failure[name]}")
    check("a mistake gets a code and the next step", failure["code"] == "BAD_PATH" and bool(failure["hint"]))


async def show_git(room: Path, environment: dict[str, str]) -> None:
    title("A text: the diff of a repository, from mcp-server-git")
    if find_spec("mcp_server_git") is None or shutil.which("git") is None:
        print("  skipped: it needs git, and mcp-server-git from the extra 'demo'")
        return
    repository = make_repository(room / "repository")
    command = [sys.executable, "-m", "mcp_server_git", "--repository", str(repository)]
    arguments = {"repo_path": str(repository), "target": "HEAD~1", "context_lines": 3}
    async with client(command, environment) as direct:
        whole = texts(await direct.call_tool("git_diff", arguments))[0]
    async with client(proxied(command), environment) as through:
        show_command([*command[:-1], "REPOSITORY"])
        result = await through.call_tool("git_diff", arguments)
        shown = texts(result)
        sizes(whole, "\n".join(shown))
        tell(shown[0])
        for line in shown[1].splitlines()[:5]:
            print(clip(f"  {line}"))
        print("     …")
        print()
        check("each lane is within the budget", within(result))
        handle = shown[0].split('handle="')[1].split('"')[0]
        offset, parts = 0, []
        while offset < len(whole):
            parts.append((await ask(through, handle, path="/content/0/text", offset=offset, quiet=True))[-1])
            offset += len(parts[-1])
        check(
            f"{len(parts)} pages joined end to end match the original, byte for byte", "".join(parts) == whole
        )


async def show_crash(environment: dict[str, str]) -> None:
    title("A server that dies in the middle of a call")
    async with client(proxied(TICKETS), environment) as through:
        show_command(TICKETS)
        result = await through.call_tool("restart", {})
        failure = json.loads(texts(result)[0])["_envelope"]["error"]
        for name in ("code", "message", "hint"):
            tell(f"{name}: {failure[name]}")
        check("the call is answered, with a code and the next step", failure["code"] == "UPSTREAM_DIED")


# -- servers and calls ---------------------------------------------------------------------------------------


def proxied(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "mcp_envelope", "proxy", "--tokens", str(LIMIT), "--", *command]


def show_command(command: list[str]) -> None:
    shown = ["python" if part == sys.executable else part for part in command]
    shown = [Path(part).name if part.startswith("/") else part for part in shown]
    for line in wrap(
        f"$ mcp-envelope proxy --tokens {LIMIT} -- {shlex.join(shown)}", indent="    ", first=""
    ):
        print(paint("1", line))


@asynccontextmanager
async def client(command: list[str], environment: dict[str, str]) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    with open(os.devnull, "w") as nowhere:
        async with Client(stdio_client(parameters, errlog=nowhere)) as connected:
            yield connected


async def ask(through: Client, handle: str, *, quiet: bool = False, **arguments: Any) -> list[str]:
    """Call `envelope_read`, and show the call as a model would make it."""
    if not quiet:
        shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
        print(paint("1", clip(f"envelope_read(handle, {shown})")))
    result = await through.call_tool("envelope_read", {"handle": handle, **arguments})
    if not within(result):
        check("a page is within the budget", False)
    return texts(result)


def make_repository(folder: Path) -> Path:
    """Create a repository with two commits of many files that differ a lot."""
    chance = random.Random(3)
    folder.mkdir()
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    for turn in ("first", "second"):
        for number in range(120):
            lines = [f"{turn} {' '.join(chance.choices(words, k=8))}" for _ in range(30)]
            (folder / f"module_{number:03}.txt").write_text("\n".join(lines) + "\n")
        git = ["git", "-C", str(folder), "-c", "user.name=demo", "-c", "user.email=demo@example.com"]
        if turn == "first":
            subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"The {turn} version"], check=True)
    return folder


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content]


# -- checking ------------------------------------------------------------------------------------------------


def tokens(value: Any) -> int:
    return meter_named("exact").count(compact(value))


def within(result: Any) -> bool:
    # Models get the texts, without the escapes that they have on the wire.
    lanes = ["\n".join(texts(result))]
    if result.structured_content is not None:
        lanes.append(result.structured_content)
    return all(tokens(lane) <= LIMIT for lane in lanes)


def compact(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def check(promise: str, kept: bool) -> None:
    if not kept:
        broken.append(promise)
    mark = paint("32", TICK) if kept else paint("31", CROSS)
    print("\n".join(wrap(promise, indent="    ", first="  ")).replace("  ", f"  {mark} ", 1))


# -- showing -------------------------------------------------------------------------------------------------


def title(words: str) -> None:
    print(f"\n{paint('2', RULE * WIDTH)}\n{paint('1;36', clip(words))}\n")


def sizes(before: Any, after: Any) -> None:
    widest = max(WIDTH - 42, 6)
    whole = len(compact(before))
    print()
    for name, value, colour in (("before", before, "31"), ("after", after, "32")):
        size = len(compact(value))
        length = max(1, round(widest * size / whole))
        bar = paint(colour, BAR * length) + " " * (widest - length)
        print(f"  {name:<6} {bar} {size:>9,} bytes {tokens(value):>8,} tokens")
    print(paint("2", f"  {'budget':<6} {'':<{widest}} {'':>15} {LIMIT:>8,} tokens\n"))


def outline(document: dict[str, Any]) -> None:
    """Print an object: the length and first items of its lists, and the beginning of each part of its notice."""
    print("  {")
    for key, value in document.items():
        if key == "_envelope":
            print(paint("33", f'    "{key}": {{'))
            for name, field in value.items():
                said = f'"{name}": {json.dumps(field, ensure_ascii=False)},'
                for line in shortened(wrap(said, " " * 8, " " * 6)):
                    print(paint("33", line))
            print(paint("33", "    },"))
        elif isinstance(value, list):
            print(f'    "{key}": [')
            for item in value[:2]:
                print(clip(f"      {json.dumps(item, ensure_ascii=False)}"))
            print(paint("2", f"      … {len(value)} items in all"))
            print("    ],")
        else:
            print(clip(f'    "{key}": {json.dumps(value, ensure_ascii=False)},'))
    print("  }\n")


def tell(words: str) -> None:
    """Print what the envelope itself says."""
    for line in shortened(wrap(words, indent="    ", first="  ")):
        print(paint("33", line))


def shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LONGEST else [*lines[: LONGEST - 1], clip(f"{lines[LONGEST - 1]} …")]


def paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if PRETTY else text


def clip(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def wrap(text: str, indent: str = "    ", first: str | None = None) -> list[str]:
    """Return lines of the terminal's width, broken between words; a longer word gets its own line."""
    first = indent if first is None else first
    lines = TextWrapper(WIDTH, first, indent, break_long_words=False, break_on_hyphens=False).wrap(text)
    return lines or [first]

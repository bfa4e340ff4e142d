"""Three payloads before and after `mcp-envelope seal`, and the rest of one read back: what `make demo` shows.

Strategy: each part runs the real command, exactly as printed, on a sample that is made on the spot, and then
checks the result with means of its own: the meter, the schema library, a JSON parser, the original. What is cut is
stored in the demo's own folder, which is gone afterwards. Colour and width follow the terminal; in a pipe the
output is plain.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import jsonschema_rs
from samples import generate

from mcp_envelope import widen
from mcp_envelope.meters import meter

SCHEMA = Path(__file__).parent / "samples" / "search.schema.json"
LIMIT = 2000

PRETTY = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
WIDTH = max(48, min(shutil.get_terminal_size((88, 24)).columns, 110))
UNICODE = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
BAR, RULE, TICK, CROSS = ("█", "─", "✓", "✗") if UNICODE else ("#", "-", "ok:", "NO:")

failures: list[str] = []


def main() -> int:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        shutil.copy(SCHEMA, room)
        os.environ["MCP_ENVELOPE_VAULT"] = str(room / "vault.db")
        show_search(room)
        show_project(room)
        show_log(room)
    print()
    if failures:
        print(paint("31", f"Broken promises: {', '.join(failures)}"))
        return 1
    print(paint("1", "Try it: ") + "seq 1 5000 | .venv/bin/mcp-envelope seal --tokens 200")
    return 0


def show_search(room: Path) -> None:
    title("A search result: 900 hits, and a schema that allows no further properties")
    payload = save(room / "search.json", generate.search())
    result = seal(
        room,
        "search.json",
        "--schema",
        SCHEMA.name,
        "--widen",
        "--rank",
        "/hits:-score",
        "--tokens",
        str(LIMIT),
    )
    sealed = result["structuredContent"]
    sizes(payload, compact(sealed))
    outline(sealed)
    advertised = json.loads(SCHEMA.read_bytes())
    alone = {key: value for key, value in sealed.items() if key != "_envelope"}
    scores = [hit["score"] for hit in sealed["hits"]]
    best = sorted((hit["score"] for hit in json.loads(payload)["hits"]), reverse=True)
    check("each lane is within the budget", within(result))
    check("valid under the widened schema", is_valid(widen(advertised).schema, sealed))
    check("without its notice, valid under the tool's own schema", is_valid(advertised, alone))
    check("the best hits were kept", scores == best[: len(scores)])
    check("the text lane is JSON, too", is_json(result["content"][0]["text"]))
    read_on(room, sealed["_envelope"]["handle"], json.loads(payload)["hits"])


def read_on(room: Path, handle: str, hits: list[dict[str, Any]]) -> None:
    """The whole was kept: a page of it, and a search in it."""
    print()
    page = json.loads(run(room, "read", handle, "--path", "/hits", "--offset", "400", "--tokens", "600"))
    for hit in page[:2]:
        print(clip(f"  {json.dumps(hit, ensure_ascii=False)}"))
    print(paint("2", f"  … {len(page)} items on this page"))
    print()
    check("the page is that slice of the original", page == hits[400 : 400 + len(page)])
    word = hits[-1]["path"]
    print()
    found = json.loads(run(room, "read", handle, "--grep", f"^{re.escape(word)}$", "--tokens", "300"))
    for match in found[:2]:
        print(clip(f"  {json.dumps(match, ensure_ascii=False)}"))
    print()
    first = next(index for index, hit in enumerate(hits) if hit["path"] == word)
    check("the search tells where it is", found[0]["path"] == f"/hits/{first}/path")


def show_project(room: Path) -> None:
    title("An object with two large lists: neither starves the other")
    payload = save(room / "project.json", generate.project())
    result = seal(room, "project.json", "--tokens", str(LIMIT))
    sealed = result["structuredContent"]
    sizes(payload, compact(sealed))
    outline(sealed)
    check("each lane is within the budget", within(result))
    for key in ("files", "commits"):
        share = len(compact(sealed[key])) / len(compact(sealed))
        check(f"{key}: {len(sealed[key])} items, {share:.0%} of the result", share > 0.25)


def show_log(room: Path) -> None:
    title("The log of a failed build: plain text, whole lines, both ends")
    payload = save(room / "build.log", generate.log())
    result = seal(room, "build.log", "--error", "--tokens", "400")
    blocks = [block["text"] for block in result["content"]]
    sizes(payload, "".join(blocks).encode(), 400)
    lines = blocks[0].splitlines()
    for line in [*lines[:3], "", *lines[-3:]]:
        print(clip(f"  {line or '   …'}"))
    print()
    for line in wrap(blocks[-1]):
        print(paint("33", line))
    print()
    check("each lane is within the budget", within(result, 400))
    check("the reason at the end is still there", "no space left on device" in blocks[0])


# -- running and checking ----------------------------------------------------------------------------------


def save(path: Path, payload: dict[str, Any] | str) -> bytes:
    data = payload.encode() if isinstance(payload, str) else compact(payload)
    path.write_bytes(data)
    return data


def seal(room: Path, *arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(room, "seal", *arguments))
    return result


def run(room: Path, *arguments: str) -> bytes:
    """Run the command, show what it said to people, and give what it said to machines."""
    for line in wrap(f"$ mcp-envelope {shlex.join(arguments)}", indent="    ", first=""):
        print(paint("1", line))
    command = [sys.executable, "-m", "mcp_envelope", *arguments]
    done = subprocess.run(command, cwd=room, capture_output=True, check=False)
    for said in done.stderr.decode().splitlines():
        for line in wrap(said, indent="    ", first=""):
            print(paint("32", line))
    if done.returncode:
        sys.exit(f"the command ended with exit code {done.returncode}")
    return done.stdout


def tokens(text: bytes) -> int:
    return meter("estimate").count(text)


def within(result: dict[str, Any], limit: int = LIMIT) -> bool:
    lanes = [result[lane] for lane in ("content", "structuredContent") if lane in result]
    return all(tokens(compact(lane)) <= limit for lane in lanes)


def is_valid(schema: dict[str, Any], instance: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(instance)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# -- showing -----------------------------------------------------------------------------------------------


def title(words: str) -> None:
    print(f"\n{paint('2', RULE * WIDTH)}\n{paint('1;36', clip(words))}\n")


def sizes(before: bytes, after: bytes, limit: int = LIMIT) -> None:
    rows = [("before", before, "31"), ("after", after, "32")]
    widest = max(WIDTH - 42, 6)
    print()
    for name, text, colour in rows:
        length = max(1, round(widest * len(text) / len(before)))
        bar = paint(colour, BAR * length) + " " * (widest - length)
        print(f"  {name:<6} {bar} {len(text):>9,} bytes {tokens(text):>8,} tokens")
    print(paint("2", f"  {'budget':<6} {'':<{widest}} {'':>15} {limit:>8,} tokens\n"))


def outline(document: dict[str, Any]) -> None:
    """An object's shape: its lists by their number and first item, its notice in full."""
    print("  {")
    for key, value in document.items():
        if key == "_envelope":
            print(paint("33", f'    "{key}": {{'))
            for name, said in value.items():
                for line in wrap(f'"{name}": {json.dumps(said, ensure_ascii=False)},', " " * 8, " " * 6):
                    print(paint("33", line))
            print(paint("33", "    }"))
        elif isinstance(value, list):
            print(f'    "{key}": [')
            for item in value[:2]:
                print(clip(f"      {json.dumps(item, ensure_ascii=False)}"))
            print(paint("2", f"      … {len(value)} items in all"))
            print("    ],")
        else:
            print(clip(f'    "{key}": {json.dumps(value, ensure_ascii=False)},'))
    print("  }\n")


def check(promise: str, kept: bool) -> None:
    if not kept:
        failures.append(promise)
    print(f"  {paint('32', TICK) if kept else paint('31', CROSS)} {promise}")


def paint(colour: str, text: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if PRETTY else text


def clip(line: str) -> str:
    if columns(line) <= WIDTH:
        return line
    while columns(line) >= WIDTH:
        line = line[:-1]
    return f"{line}…"


def columns(line: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


def wrap(text: str, indent: str = "  ", first: str = "  ") -> list[str]:
    """Lines no longer than the width, broken at spaces."""
    lines, line = [], first
    for word in text.split(" "):
        if len(line) + len(word) >= WIDTH and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += f"{word} "
    return [*lines, line.rstrip()]


if __name__ == "__main__":
    sys.exit(main())

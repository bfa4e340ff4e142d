"""The picture in README.md: the beginning of the demo, as an SVG that follows the reader's light or dark theme.

python scripts/picture.py            # writes docs/demo.svg
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "demo.svg"
COLUMNS: Final = 96
# The demo goes on for a few screens; this is the first.
LINES: Final = 31
LINE, CHARACTER, MARGIN = 18, 8.43, 16
ANSI: Final = re.compile(r"\x1b\[([0-9;]*)m")
STYLE: Final = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; }
.back { fill: #f6f8fa; stroke: #d0d7de; }
.bold { font-weight: 600; } .dim { fill: #6e7781; } .red { fill: #cf222e; } .green { fill: #1a7f37; }
.yellow { fill: #9a6700; } .cyan { fill: #0550ae; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .back { fill: #0d1117; stroke: #30363d; }
  .dim { fill: #8b949e; } .red { fill: #ff7b72; } .green { fill: #3fb950; }
  .yellow { fill: #d29922; } .cyan { fill: #79c0ff; }
}"""
CLASSES: Final = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}


def recorded() -> list[str]:
    """Return what the demo prints at a terminal of our width."""
    import pty

    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "PYTHONPATH": str(ROOT / "src"),
    }
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_envelope", "demo"], stdout=theirs, stderr=theirs, env=environment
    ) as demo:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # Linux says so when the last writer has gone
        assert demo.wait() == 0, shown.decode()
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").splitlines()


def drawn(line: str, y: int) -> str:
    """Return a line as text with spans; each span has its place, so that any font keeps the columns."""
    spans, style, column, at = [], "", 0, 0
    for found in [*ANSI.finditer(line), None]:
        text = line[at : found.start() if found else len(line)]
        if text.strip():
            x = MARGIN + column * CHARACTER
            mark = f' class="{style}"' if style else ""
            width = sum(2 if east_asian_width(char) in "WF" else 1 for char in text) * CHARACTER
            length = f'textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"'
            spans.append(
                f'<text x="{x:.1f}" y="{y}"{mark} {length} xml:space="preserve">{escape(text)}</text>'
            )
        column += sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
        if found:
            at = found.end()
            style = " ".join(CLASSES[code] for code in found[1].split(";") if code in CLASSES)
    return "".join(spans)


def main() -> None:
    lines = recorded()
    while not lines[0].strip() or "─" in lines[0]:
        del lines[0]
    lines = lines[:LINES]
    width, height = int(2 * MARGIN + COLUMNS * CHARACTER), 2 * MARGIN + LINE * len(lines)
    body = "\n".join(
        drawn(line, MARGIN + LINE * number + 13) for number, line in enumerate(lines) if line.strip()
    )
    about = "A tool result of 1,500 tickets, before and after: it fits, is valid, and can be read on"
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{about}">\n'
        f"<title>{about}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="back" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n{body}\n</svg>\n',
        "utf-8",
    )
    print(f"{PICTURE.relative_to(ROOT)}: {len(lines)} lines")


if __name__ == "__main__":
    main()

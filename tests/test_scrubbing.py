"""What scrubbing keeps in a text, and what it removes."""

from __future__ import annotations

import pathlib
import re
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import scrubbing
from mcp_envelope.scrubbing import CODE, PATH, TRACEBACK, scrub, scrub_details, scrub_line, show_path

from .conftest import examples

STAY = [
    "symbolId: String should have at least 1 character",
    "3/4 of the files, 2026/01/02, text/plain, application/vnd.api+json, and/or, N/A",
    "see https://host.example/a/b and http://127.0.0.1:8900/health",
    "docs://match/1 has it",
    "nothing at /items/0/name",
    "'/meta/items/2' and /items and /health",
    "src/app/main.py:12:5 is relative, so is ./home/x and ../usr/y",
    "must match /^foo\\/bar$/i or '^/[a-z]+$' or \\d+\\w",
    "</div> and <br/> // and /* and a / b",
    "at least one of (a, b) is needed",
    'Did you mean read_file(path)? Use map_search("x") first.',
    "Dropped 20 references to fit tokenBudget=800. Pass fileFilter:'src/' to scope results.",
    "Expected `int`, got `str` - at `$.a[1]`",
    "Choose one:\n- a\n- b",
    "py:src/app.py#App.run",
    "non-I/O work",
]


@pytest.mark.parametrize("text", STAY)
def test_stays(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("File not found: /srv/missing.py", "File not found: missing.py"),
        ("File not found: /missing.py", "File not found: missing.py"),
        ("open('/home/a b/c d.txt') failed", "open('c d.txt') failed"),
        ("no /home/me/my docs/plan.txt (3)", "no plan.txt (3)"),
        ("no /my docs/plan.txt here", "no plan.txt here"),
        ("C:\\Users\\Jo Smith\\a.txt: denied", "a.txt: denied"),
        ("D:/mixed\\slashes/a.txt", "a.txt"),
        ('"C:\\\\Users\\\\Jo\\\\a.txt"', '"a.txt"'),
        ("\\\\server\\share\\x.txt, //server/share/y.txt", "x.txt, y.txt"),
        ("\\\\?\\C:\\Users\\x.txt", "x.txt"),
        ("\\Users\\jo\\x.txt", "x.txt"),
        ("file:///home/u/x%20y.py: bad", "x%20y.py: bad"),
        ("file:///C:/Users/u/x.py", "x.py"),
        ("~bob/secret/x, ~/a/b", "x, b"),
        ("-I/usr/include/x.h PATH=/usr/bin:/bin:/opt/q/z", "-Ix.h PATH=bin:bin:z"),
        (
            "/home/u/a.py:12:5: error; (/srv/x/y.py) [/tmp/a] {/etc/passwd}",
            "a.py:12:5: error; (y.py) [a] {passwd}",
        ),
        ('{\\"file\\": \\"/home/u/q w/e.txt\\"}', '{\\"file\\": \\"e.txt\\"}'),
        ("\\/home\\/u\\/x.txt", "x.txt"),
        ("sqlite:////home/u/db.sqlite", "sqlite://db.sqlite"),
        ("vscode://file/home/u/x.py", "vscode://x.py"),
        ("https://host/a?file=/home/u/x", "https://host/a?…"),
        ("/home/u/../../etc/passwd", "passwd"),
        ("打开/home/user/x失败", "打开x失败"),
        ("C:\\", PATH),
    ],
)
def test_paths(text: str, shown: str) -> None:
    assert scrub(text) == shown


@pytest.mark.parametrize(
    ("text", "root", "shown"),
    [
        ("in /home/u/p/src/a.py", "/home/u/p", "in src/a.py"),
        ("in /home/u/p/src/a.py", "/home/u/p/", "in src/a.py"),
        ("in /home/u/pq/src/a.py", "/home/u/p", "in a.py"),
        ("in '/home/u/p/my src/a.py'", "/home/u/p", "in 'my src/a.py'"),
        ("in /home/u/p", "/home/u/p", "in ."),
        ("in /home/u/p/../q/x.py", "/home/u/p", "in x.py"),
        ("in c:\\Work\\Proj\\src\\a.py", "C:\\work\\proj", "in src/a.py"),
        ("in file:///home/u/p/a.py", "/home/u/p", "in a.py"),
        ("in /home/u/p/src/a.py", "/", "in a.py"),
    ],
)
def test_relative_to_the_root(text: str, root: str, shown: str) -> None:
    assert scrub(text, root) == shown


def test_what_the_client_passed_may_be_said_back() -> None:
    known = scrubbing.given({"path": "/missing.py", "more": [{"x": "/a/b c/d.py"}], "n": 3})
    assert scrub("File not found: /missing.py", known=known) == "File not found: /missing.py"
    assert scrub("File not found: '/a/b c/d.py'.", known=known) == "File not found: '/a/b c/d.py'."
    assert scrub("/missing.py/etc and /missing.pyc", known=known) == "etc and missing.pyc"
    assert scrub("/home/u/x.py", known={"/home", "/", ""}) == "x.py"
    assert show_path("/missing.py", known=known) == "/missing.py"
    assert show_path("/srv/missing.py", known=known) == "missing.py"


def chained_traceback() -> str:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError:
        return traceback.format_exc()


TRACES = [
    chained_traceback(),
    repr(chained_traceback()),
    '  File "/a/secret.py", line 3, in f\n    secret = 1\n    ^^^^^^\n',
    "    at secret (/a/b.js:1:2)\n    at async Object.<anonymous> (/a/c.js:3:4)\n",
    "at secret (/a/b.js:1:2) at /a/c.js:3:4",
    "\tat com.secret.B.c(B.java:12)\n\tat z(Native Method)\n\t... 3 more\nCaused by: java.io.Secret: q\n",
    "goroutine 1 [running]:\nmain.secret()\n\t/tmp/x.go:3 +0x1d\n",
    "stack backtrace:\n   0: secret\n             at /rustc/q.rs:3:4\n",
    "   at Ns.Secret.Run(String a) in C:\\x.cs:line 3\n",
    "/a/b.rb:3:in `secret'\n",
    "#0 /a/b.php(12): secret()\n#1 {main}\n",
]
SOURCES = [
    "def secret(a):\n    return a\n",
    "async def secret(a): return a",
    "class Secret(Base):\n    pass",
    "from secret import thing",
    "import secret",
    "@secret.cached",
    "secret = compute(1)",
    "for secret in values:\n    print(secret)",
    "if secret == 1:\n    pass",
    "    return secret",
    "\tsecret += 1",
    "const secret = 1",
    "function secret(a) { return a }",
    "public int secret(String a) {",
    "fn secret(a: u8) -> u8 { a }",
    "func (s *T) secret(a int) {",
    "#include <secret.h>",
    "```\nsecret\n```",
    "  12 | secret",
    ">>> secret",
    "secret +\n      ^",
    "int secret;",
]


@pytest.mark.parametrize("trace", TRACES)
def test_stack_traces_go(trace: str) -> None:
    for text in (trace, f"It failed:\n{trace}", f"It failed: {trace}"):
        shown = scrub(text)
        assert "secret" not in shown.lower()
        assert TRACEBACK in shown
        assert shown.count("[") == 1
        assert not re.search(r"\.(py|js|go|rs|java|rb|php|cs)\b", shown)
    assert scrub(f"It failed:\n{trace}").startswith("It failed")


@pytest.mark.parametrize("source", SOURCES)
def test_source_goes(source: str) -> None:
    shown = scrub(f"It failed\n{source}")
    assert "secret" not in shown.lower()
    assert shown == f"It failed\n{CODE}"
    assert "secret" not in scrub_line(f"It failed\n{source}").lower()


@pytest.mark.parametrize("source", SOURCES[:3] + SOURCES[11:16])
def test_source_in_a_sentence_goes(source: str) -> None:
    assert scrub_line(f"It failed: {source}") == f"It failed: {CODE}"


def test_a_line_with_nothing_to_show_is_empty() -> None:
    assert scrub_line("def f(): pass") == ""
    assert scrub_line(chained_traceback()) == ""
    assert scrub_line("first\nsecond") == "first"


def test_control_characters_and_length() -> None:
    assert scrub("a\x00b\x1b[31mred\x1b[0m\u202ec\ud800\x07") == "abredc?"
    assert scrub("x" * 600) == "x" * 499 + "…"
    assert [len(scrub("word " * 50, limit=limit)) for limit in (0, 1, 2, 100)] == [0, 1, 2, 100]


def test_details() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    value = {
        "/home/u/key": ["/home/u/v.txt", b"ab", object(), None, True, 1.5],
        "where": pathlib.PurePosixPath("/home/u/p/a.py"),
        "snippet": "x",
        "nested": ({"Traceback": chained_traceback()}, {1: "/srv/q/z"}),
        "error": OSError("/home/u/x"),
    }
    assert scrub_details(value, root="/home/u/p") == {
        "key": ["v.txt", "[2 bytes]", "[object]", None, True, 1.5],
        "where": "a.py",
        "snippet": CODE,
        "nested": [{"Traceback": TRACEBACK}, {"1": "z"}],
        "error": "[OSError]",
    }
    assert "[left out]" in str(scrub_details(cycle))
    assert len(scrub_details(list(range(20_000)))) <= 10_000
    assert scrub_details(None) is None


HOSTILE = [
    "/", "/a ", "'C:/", '"/', "/a b/(/c d/(", "a", "class ", "at ", ":1", "x = ", "~", "\\", 'File "', "http",
    "/a:", "(/a/b c/d ", " ", "\n", "^\n", "    x\n", "def ", "a.b.", "at x(", "\\/home", "from a ", "assert == ",
    "lambda ", "#1 (1", "> ", "1 ", "a://", "```\n", "\t", "|", "(x) ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_long_hostile_text(piece: str) -> None:
    # The longer limit makes it read 60,000 characters: a quadratic expression would take a minute.
    text = piece * (300_000 // len(piece))
    assert len(scrub(text, limit=30_000, known=["/a", "/a/b c/d"])) <= 30_000
    assert len(scrub(text)) <= 500


segments = st.from_regex(r"[A-Za-z_][A-Za-z0-9_+-]{2,9}", fullmatch=True)
spaced = st.lists(segments, min_size=1, max_size=3).map(" ".join)
roots = st.sampled_from(["home", "Users", "var", "opt", "tmp", "work", "mnt", "etc", "srv", "workspace"])
files = st.tuples(segments, st.sampled_from(["py", "txt", "json", "rs"])).map(".".join)


@st.composite
def absolute_paths(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a path, and those of its directories that must not be shown."""
    quoted = draw(st.booleans())
    folders = draw(st.lists(spaced if quoted else segments, min_size=2, max_size=4))
    folders = [f"dir{number}{name}" for number, name in enumerate(folders)]
    kind = draw(st.sampled_from(["posix", "drive", "mixed", "share", "file", "home", "user", "escaped"]))
    first, last = draw(roots), draw(files)
    path = {
        "posix": "/".join(["", first, *folders, last]),
        "drive": "\\".join(["C:", first, *folders, last]),
        "mixed": "D:/" + "\\".join([first, *folders]) + "/" + last,
        "share": "\\\\" + "\\".join(["dirhost", *folders, last]),
        "file": "file:///" + "/".join([first, *folders, last]).replace(" ", "%20"),
        "home": "~/" + "/".join([*folders, last]),
        "user": "~dirbob/" + "/".join([*folders, last]),
        "escaped": "C:\\\\" + "\\\\".join([*folders, last]),
    }[kind]
    quote = draw(st.sampled_from("\"'`")) if quoted else draw(st.sampled_from(["", "", '"', "'", "`"]))
    return f"{quote}{path}{quote}", folders


before = st.sampled_from(["", "cannot open ", "error: ", "path=", "(", "[", "a, ", "see:", "<", "|", "x: "])
after = st.sampled_from(["", " is missing", ":12:5", ", line 3", ")", "]", ".", "; and more", ">", "\nnext"])


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(before, absolute_paths(), after), min_size=1, max_size=3))
def test_no_directory_of_an_absolute_path_is_seen(
    pieces: list[tuple[str, tuple[str, list[str]], str]],
) -> None:
    text = " ".join(f"{head}{path}{tail}" for head, (path, _), tail in pieces)
    for shown in (
        scrub(text),
        scrub_line(text),
        str(scrub_details({"a": [text]})),
        str(scrub_details({text: 1})),
    ):
        for _, (path, folders), _ in pieces:
            assert path.strip("\"'`") not in shown
            for folder in folders:
                assert folder not in shown, (text, shown)


@settings(max_examples=examples(200))
@given(st.text(alphabet=st.sampled_from("/\\:~ .'\"`abC0\n-=([{}])<>|?#%^\t*"), max_size=60))
def test_nothing_breaks_it_and_twice_is_once(text: str) -> None:
    shown = scrub(text)
    assert len(shown) <= 500
    shown.encode()
    assert not re.search(r"(?:^|[\s\"'=(\[])/(?:home|tmp|etc|usr)\b", scrub(f"{text} /home/x/y"))


@settings(max_examples=examples(300))
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    scrub(text, root=text, known=[text]).encode()
    scrub_line(text).encode()

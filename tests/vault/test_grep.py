"""Searches: every match of a slow and simple search, at a place where a page begins with the match."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.jsontext.document import encode, sniff
from mcp_envelope.vault import document, grep, layout, limits
from mcp_envelope.vault.document import StoredValue, root_of
from mcp_envelope.vault.grep import BadQuery, Found, Match, SearchLimits, TooCostly, run
from mcp_envelope.vault.layout import IndexBuilder, InMemory
from tests.conftest import examples


def stored(data: bytes, far: int = 1 << 15, *, as_text: bool = False) -> StoredValue:
    """A payload as it comes back from a store; a small `far` (but no less than an escape) makes all large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CHUNK", far)
        patch.setattr(document, "CHUNK", far)
        builder = IndexBuilder(len(data))
        made = builder.text(data) if as_text else builder.document(data)
        return root_of(InMemory(data + builder.appendix), len(data), made).opened()


def text(data: str, far: int = 1 << 15) -> StoredValue:
    return stored(data.encode(), far, as_text=True)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture(autouse=True, scope="module")
def _whole_lines() -> Iterator[None]:
    """Lines are shown whole here; the test of the clipping sets the length itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep, "_SHOWN", 1 << 20)
        yield


# -- a slow and simple search -------------------------------------------------------------------------------


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def strings_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and sniff(value.encode()) is not None:
        value = json.loads(value)
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings_of(item, f"{path}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_of(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")


def expected(strings: Iterator[tuple[str, str]], pattern: re.Pattern[str], context: int) -> list[Match]:
    matches: list[Match] = []
    for path, said in strings:
        lines = lines_of(said)
        starts = [0, *[found.end() for found in re.finditer("\n", said)]]
        for number, line in enumerate(lines):
            if found := pattern.search(line):
                matches.append(
                    Match(
                        path=path,
                        offset=starts[number] + found.start(),
                        line=number + 1,
                        text=line,
                        before=lines[max(number - context, 0) : number],
                        after=lines[number + 1 : number + 1 + context],
                    )
                )
    return matches


_lines = st.text(st.sampled_from('aabbA1 _é😀\n\n\r"\\/{[]}:,\t\x01'), max_size=40)
_keys = st.sampled_from(["a", "b", "A1", "k/~", "é", ""])
_documents: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        _lines, _lines, st.integers(-100, 100), st.none(), st.just(1.5), st.just("a\r\nb\r\n"), st.just("\r")
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(_keys, inner, max_size=4),
        inner.map(json.dumps),
        inner.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
        inner.map(lambda value: " \n" + json.dumps(value)),
    ),
    max_leaves=15,
)
_ATOMS = [
    "a",
    "b",
    "A",
    "1",
    "é",
    ".",
    "^",
    "$",
    "[ab]",
    "[^a]",
    r"\b",
    r"\d",
    r"\w",
    " ",
    '"',
    r"\\",
    r"\{",
    r"\[",
    "",
    "😀",
]
_SUFFIXES = ["", "", "", "*", "+", "?", "{2}", "*?"]


@st.composite
def patterns(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        atom = draw(st.sampled_from(_ATOMS))
        parts.append(atom + (draw(st.sampled_from(_SUFFIXES)) if atom not in ("^", "$", r"\b", "") else ""))
    return draw(st.sampled_from(["{}", "{}", "(?:{})|bb", "({})", r"\A{}", r"{}\z"])).format("".join(parts))


def slow(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII | (re.IGNORECASE if ignore_case else 0))


def check(root: StoredValue, found: Found, wanted: list[Match]) -> None:
    assert found == Found(matches=wanted, more=False, total=len(wanted))
    for match in found.matches:
        # A page that begins at the match begins with it, and with the rest of its line.
        page = root.find(match.path).text(match.offset, 1000)
        rest = match.text[match.offset - line_start(root, match) :]
        assert lines_of(page)[:1] == ([rest] if page else [])


def line_start(root: StoredValue, match: Match) -> int:
    said = root.find(match.path).text(0, 1 << 20)
    return said[: match.offset].rfind("\n") + 1


@settings(max_examples=examples(200))
@given(
    _documents,
    patterns(),
    st.sampled_from([16, 50, 1 << 15]),
    st.sampled_from([10, 100, 1 << 20]),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
def test_documents(
    value: Any, pattern: str, far: int, large: int, context: int, ignore_case: bool, spaced: bool
) -> None:
    data = json.dumps(value, ensure_ascii=spaced, indent=1) if spaced else compact(value)
    root = stored(data.encode(), far)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep, "_LARGE_CHUNK", large)
        patch.setattr(grep, "_PART", large)
        found = run(root, "(?i)" * ignore_case + pattern, context=context, most_bytes=1 << 20)
    check(root, found, expected(strings_of(value), slow(pattern, ignore_case), context))


@settings(max_examples=examples(200))
@given(
    st.lists(_lines, max_size=8).map("\n".join),
    patterns(),
    st.sampled_from([16, 50, 1 << 15]),
    st.integers(0, 2),
)
def test_texts(said: str, pattern: str, far: int, context: int) -> None:
    root = text(said, far)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep, "_PART", far)
        found = run(root, pattern, context=context, most_bytes=1 << 20)
    check(root, found, expected(iter([("", said)]), slow(pattern, False), context))


@settings(max_examples=examples(50))
@given(_documents, patterns(), st.integers(0, 300), st.integers(0, 1))
def test_pages_of_matches_are_all_matches(value: Any, pattern: str, room: int, context: int) -> None:
    root = stored(compact(value).encode(), 50)
    whole = run(root, pattern, context=context, most_bytes=1 << 20)
    matches: list[Match] = []
    while True:
        page = run(root, pattern, context=context, skip=len(matches), most_bytes=room)
        matches += page.matches
        # Only the last one may be too much.
        assert sum(len(encode(match)) + 1 for match in page.matches[:-1]) <= room
        if not page.more:
            break
        assert page.matches or room == 0
        assert page.total == len(whole.matches)
        if room == 0:
            return
    assert matches == whole.matches
    assert page.total == len(matches)


# -- JSON ---------------------------------------------------------------------------------------------------


def found_in(value: Any, pattern: str, **options: Any) -> list[tuple[str, int, str]]:
    found = run(stored(compact(value).encode()), pattern, **options)
    return [(match.path, match.offset, match.text) for match in found.matches]


def test_only_string_values_are_searched() -> None:
    assert found_in({"needle": 1, "a": ["needle", {"needle": "x needle"}], "n": 17}, "needle|17") == [
        ("/a/0", 0, "needle"),
        ("/a/1/needle", 2, "x needle"),
    ]


def test_characters_are_counted_not_bytes() -> None:
    assert found_in(["é" * 20, "needle", "😀é needle", "é\r\n", "é\nneedle", "x"], "needle") == [
        ("/1", 0, "needle"),
        ("/2", 3, "😀é needle"),
        ("/4", 2, "needle"),
    ]
    assert found_in(["é" * 20, "needle", "😀é needle"], "needle") == [
        ("/1", 0, "needle"),
        ("/2", 3, "😀é needle"),
    ]


@pytest.mark.parametrize("opening", ["", " ", "\n", "\t \r\n"])
def test_strings_that_hold_json_are_searched_inside(opening: str) -> None:
    inner = {"b/c": ["one\ntwo é", 'say "two"'], "n": [opening + compact(["two\n"])]}
    value = {"a": opening + compact(inner)}
    assert found_in(value, "^two") == [("/a/b~1c/0", 4, "two é"), ("/a/n/0/0", 0, "two")]
    assert found_in(value, '"two"$') == [("/a/b~1c/1", 4, 'say "two"')]
    # The brackets and escapes of the JSON inside are not text.
    assert found_in(value, r"[\[\\]") == []


def test_every_escape_is_understood() -> None:
    data = rb'["a\"b","a\\b","a\/b","a\tb","a\u0062","\u00e9","a\b\fb","a\r\nb\r"]'
    for pattern, path in [
        ('a"b', "/0"),
        (r"a\\b", "/1"),
        ("a/b", "/2"),
        (r"a\tb", "/3"),
        ("^ab$", "/4"),
        ("é", "/5"),
        (r"\x08\f", "/6"),
        ("^a$", "/7"),
        ("^b$", "/7"),
    ]:
        # Each among others and alone, since one that is hard to tell makes all be looked at.
        assert [match.path for match in run(stored(data), pattern).matches] == [path]
        alone = b"[%b]" % data[1:-1].split(b",")[int(path[1:])]
        assert [match.path for match in run(stored(alone), pattern).matches] == ["/0"]


def test_a_large_run_without_an_index_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal keys: the index cannot tell where things are, and the last value counts."""
    monkeypatch.setattr(grep, "_LARGE_CHUNK", 200)
    monkeypatch.setattr(grep, "_PART", 50)
    parts = [f'"k{index}":"needle {index}"' for index in range(40)]
    needles, lines = compact(["needle"] * 50), compact("x\n" * 200 + "needle")
    parts += ['"k1":"hay"', f'"l":["x",{needles},"needle"]', f'"t":{lines}']
    data = "{" + ",".join(parts) + "}"
    root = stored(data.encode(), 64)
    found = run(root, "needle", most_bytes=1 << 20)
    check(root, found, expected(strings_of(json.loads(data)), re.compile("needle"), 0))
    assert found.total == 39 + 50 + 1 + 1


def test_numbers_of_any_size_and_half_pairs_do_no_harm() -> None:
    data = b'[1e400,%b,"needle \\ud83d",{"a":"needle"}]' % (b"7" * 5000)
    for far in (16, 1 << 15):
        assert [match.path for match in run(stored(data, far), "needle").matches] == ["/2", "/3/a"]


def test_scalars_at_the_top() -> None:
    assert found_in("a needle", "needle") == [("", 2, "a needle")]
    assert found_in(17, "17") == []


# -- what is shown ------------------------------------------------------------------------------------------


def test_long_lines_are_clipped_around_the_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "_SHOWN", 300)
    line = "b" * 5000 + "needle" + "a" * 5000
    (match,) = run(text(f"{line}\n{line[:301]}\nlast"), "needle", context=2).matches
    assert match.offset == 5000
    assert match.text == "…" + "b" * 100 + "needle" + "a" * 194 + "…"
    assert match.after == ["b" * 300 + "…", "last"]
    assert run(text("needle" + "a" * 400), "needle").matches[0].text == "needle" + "a" * 294 + "…"
    assert run(text("a" * 400 + "needle"), "needle").matches[0].text == "…" + "a" * 294 + "needle"
    # Context that comes from an earlier piece is clipped once.
    monkeypatch.setattr(grep, "_PART", 100)
    assert run(text("b" * 900 + "\nneedle", 100), "needle", context=1).matches[0].before == ["b" * 300 + "…"]


def test_what_is_empty_is_not_written() -> None:
    (match,) = run(text("a needle"), "needle").matches
    assert encode(match) == b'{"offset":2,"line":1,"text":"a needle"}'


@pytest.mark.parametrize("context", [-1, 10**9])
def test_context_has_bounds(context: int) -> None:
    (match,) = run(text("x\n" * 500 + "needle\n" + "x\n" * 500), "needle", context=context).matches
    assert len(match.before) == len(match.after) == (100 if context > 0 else 0)


# -- long lines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filler", ["x", "é"])
def test_a_line_that_is_searched_in_parts(filler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "_PART", 30)
    monkeypatch.setattr(grep, "_LONGEST_LINE", 100)
    monkeypatch.setattr(grep, "_OVERLAP", 10)
    for place in [*range(250), 493, 494]:
        line = filler * place + "needle" + filler * (494 - place)
        root = text(f"first\n{line}\nlast x\n", 16)
        (match,) = run(root, "needle").matches
        assert (match.offset, match.line) == (6 + place, 2)
        # The seams are not ends of lines.
        begins = [match.line for match in run(root, "^x").matches]
        ends = [match.line for match in run(root, "x$").matches]
        assert begins == ([2] if filler == "x" and place else [])
        assert ends == ([2, 3] if filler == "x" and place < 494 else [3])
        assert [match.line for match in run(root, "^last").matches] == [3]


@pytest.mark.parametrize("place", [0, 1, 30, 31, 32, 33, 60, 100, 993, 994])
def test_a_line_that_is_too_much_for_one_search(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "_AT_ONCE", 0)
    monkeypatch.setattr(grep, "_SEAM", 8)
    line = "é" * place + "needle" + "é" * (994 - place)
    root = text(f"first\n{line}\nlast é\n")
    (match,) = run(root, "needle").matches
    assert (match.offset, match.line) == (6 + place, 2)
    assert [match.line for match in run(root, "^é").matches] == ([2] if place else [])
    assert [match.line for match in run(root, "é$").matches] == ([2, 3] if place < 994 else [3])


# -- mistakes and bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "position", "told"),
    [
        ("a(b", 1, "never closed"),
        (r"\(a(b", 3, "never closed"),
        ("[(]a)", 4, "never opened"),
        (r"\Q(\E)", 5, "never opened"),
        ("é[abc", 1, "bracket"),
        ("ab\\", 2, "backslash"),
        ("x(?=y)", 1, "RE2 has no lookahead"),
        ("x(?!y)", 1, "RE2 has no lookahead"),
        ("é(?<=x)a", 1, "RE2 has no lookbehind"),
        (r"(a)\1", 3, "RE2 has no backreferences"),
        ("(?P<n>a)(?P=n)", 8, "RE2 has no backreferences"),
        ("a|*", 2, "repetition operator"),
        ("a**", 1, "repetition operator"),
        ("a++", 1, "possessive"),
        (r"a\Z", 1, r"end of a line is \$"),
        (r"\\y\y", 3, "escape"),
        ("x[z-a]", 2, "range"),
        ("a{1001}", 1, "repetition size"),
        (r"a\C", 1, "use a dot"),
        ("x(?i-m)a", 1, "cannot be turned off"),
        ("(?:.{900}|.{901})", 0, "too large"),
        (r"(?:\pL{100}){10}", 0, "repetition"),
        ("a\ud800", 1, "surrogate"),
        ("a" * 1001, 1000, "1,001 characters"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_an_example(
    pattern: str, position: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadQuery, match=told) as caught:
        run(text("x"), pattern)
    assert caught.value.position == position
    assert f"at character {position}: " in caught.value.message
    assert "An example that works" in caught.value.message
    assert caught.value.message.encode().decode().isprintable()
    assert capfd.readouterr() == ("", "")


@settings(max_examples=examples(150))
@given(st.text(st.sampled_from("ab.^$*+?{}1,()[]|\\\\:=!<P>QEAzZCdbpLx-imsn\n\0é\ud800"), max_size=12))
def test_nothing_but_the_two_failures_comes_out(pattern: str) -> None:
    root = stored(compact(["ab", "a\nb1", {"a": compact(["ab"])}]).encode(), 16)
    try:
        found = run(root, pattern)
    except BadQuery as error:
        assert 0 <= error.position <= len(pattern)  # noqa: PT017
        error.message.encode()
    else:
        for match in found.matches:
            root.find(match.path).text(match.offset, 10)


class _Clock:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize("of", ["text", "list"])
def test_matches_for_which_there_is_no_room_are_counted_up_to_a_bound(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"line {number} of them" for number in range(3000)]
    root = text("\n".join(lines), 1000) if of == "text" else stored(compact(lines).encode(), 1000)
    monkeypatch.setattr(grep, "_PART", 1000)
    found = run(root, "line", most_bytes=500)
    assert (len(found.matches) < 20, found.more, found.total) == (True, True, 3000)
    last = run(root, "line", most_bytes=500, skip=2999)
    assert (len(last.matches), last.more, last.total) == (1, False, 3000)
    monkeypatch.setattr(grep, "_COUNTED", 5000)
    found = run(root, "line", most_bytes=500)
    assert (len(found.matches) < 20, found.more, found.total) == (True, True, None)


def test_a_search_that_takes_too_long_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    root = stored(compact(["needle" * 3, *["x" * 50] * 900]).encode(), 100)
    monkeypatch.setattr(limits, "time", _Clock())
    found = run(root, "needle", limits=SearchLimits(seconds=100))
    assert len(found.matches) == 1
    assert (found.more, found.total) == (True, None)
    with pytest.raises(TooCostly, match=r"100 seconds\. Narrow it with a path"):
        run(root, "nothing", limits=SearchLimits(seconds=100))
    with pytest.raises(TooCostly):
        run(root, "needle", skip=1, limits=SearchLimits(seconds=100))


def test_the_clock_is_asked_often_when_the_pattern_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "time", _Clock())
    root = text("ab" * (1 << 19))
    run(root, "c", limits=SearchLimits(seconds=20))
    with pytest.raises(TooCostly):
        run(root, "(?:a?b?){300}c", limits=SearchLimits(seconds=20))


def test_patterns_are_not_kept_for_the_whole_process() -> None:
    run(text("x"), "x")
    assert re2._Regexp._make.cache_info().currsize <= 1


def test_the_libraries_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys, mcp_envelope.vault.read_tool, mcp_envelope.vault.grep;"
        "sys.exit(bool({'jmespath', 're2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

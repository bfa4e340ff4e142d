"""What is wrong with a file: said with its place and the nearest name, and costing only itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope.config.files import Broken, Contents, read_own_file, read_toml
from mcp_envelope.dialects.scalpel import Scalpel

from ..conftest import examples

WRONG = {
    "unknown": (
        "tokens = 500\ntokns = 5",
        "f, line 2, column 1: there is no setting 'tokns', did you mean tokens?",
    ),
    "unknown table": ("[tool.a]\n", "f, line 1, column 2: there is no setting 'tool', did you mean tools?"),
    "in a tool": (
        "[tools.a]\n  tokn = 1",
        "f, line 2, column 3: there is no setting 'tokn' for the tool a, did you mean tokens?",
    ),
    "in a profile": (
        "[profiles.p]\nmetre = 1",
        "f, line 2, column 1: there is no setting 'metre' for the profile p, did you mean meter?",
    ),
    "inline": ("tools = { a = { tokn = 1 } }", "f, line 1, column 17: there is no setting 'tokn'"),
    "dotted": ("tools.a.tokn = 1", "f, line 1, column 9: there is no setting 'tokn'"),
    "nothing near": ("xyzzy = 1", "f, line 1, column 1: there is no setting 'xyzzy'"),
    "type": ('tokens = "many"', "f, line 1, column 1: tokens = 'many': expected a whole number"),
    "truth as number": ("tokens = true", "tokens = true: expected a whole number"),
    "float": ("tokens = 1.5", "tokens = 1.5: expected a whole number"),
    "time": ("tokens = 1979-05-27", "tokens = a date: expected a whole number"),
    "too small": ("tokens = -5", "f, line 1, column 1: tokens = -5: too small; 100 is used"),
    "too large": ("bytes = 99_000_000_000", "bytes = 99000000000: too large; 1000000000 is used"),
    "huge": ("bytes = " + "9" * 400, "bytes = a number of many digits: too large"),
    "both": (
        "bytes = 900\ntokens = 900",
        "f, line 1, column 1: bytes is ignored, because tokens is set as well",
    ),
    "choice": (
        'dialect = "natve"',
        "dialect = 'natve': unknown dialect 'natve', did you mean native?",
    ),
    "choice type": ("meter = 3", "meter = 3: expected one of bytes, chars4, estimate, exact"),
    "a level": ("redact = true", "redact = true: expected one of off, tokens, keys, custom"),
    "names": ('include_only = "a"', "include_only = 'a': expected a list"),
    "a name": ('include_only = ["a", 3]', "include_only = 3: expected a string"),
    "text": ("hint = 3", "hint = 3: expected a string"),
    "table": ("lists = 3", "lists = 3: expected a table"),
    "ranking": ("[lists]\nitems = 3", "f, line 2, column 1: lists.items = 3: expected a list"),
    "ranking key": (
        '[lists]\nitems = ["-"]',
        "f, line 2, column 1: lists.items: a ranking key needs the name of a field",
    ),
    "path": ('[hints]\n"a/b" = "x"', "f, line 2, column 1: hints.a/b = 'x': write a path from the root"),
    "pattern": ("[redact_patterns]\nx = '('", "f, line 2, column 1: redact_patterns.x = '(': "),
    "record": ('workspace = { rot = "." }', "workspace: there is no key 'rot', did you mean root?"),
    "record's entry": ("workspace = { root = 1 }", "workspace: root: expected a string"),
    "record misses": ('workspace = { package = "." }', "workspace: root is missing"),
    "profile": ('profile = "debgu"', "f, line 1, column 1: there is no profile 'debgu', did you mean debug?"),
    "tool's profile": ('[tools.a]\nprofile = "std"\n', "f, line 2, column 1: there is no profile 'std'"),
    "base": (
        '[profiles.p]\nbase = "standrd"',
        "f, line 2, column 1: there is no profile 'standrd', did you mean standard?",
    ),
    "base of built-in": (
        '[profiles.debug]\nbase = "minimal"',
        "f, line 2, column 1: there is no setting 'base' for the profile debug",
    ),
    "profile in profile": (
        '[profiles.p]\nprofile = "debug"',
        "there is no setting 'profile' for the profile p",
    ),
    "base type": ("[profiles.p]\nbase = 3", "base = 3: expected a string"),
    "no name": ('include_only = [""]', "include_only = '': expected a string that isn't empty"),
    "reply": ("reply = { summary = 3 }", "reply.summary = 3: expected a string"),
    "reply's name": (
        'reply = { sumary = "" }',
        "reply.sumary = '': there is no key 'sumary', did you mean summary?",
    ),
    "tools": ("tools = 3", "tools: expected a table, not 3"),
    "a tool": (
        "[tools]\ntokens = 500",
        "tools.tokens: expected a table, not 500",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_wrong_settings(text: str, said: str) -> None:
    document = read_toml(text, "f")
    assert any(said in problem for problem in document.problems), document.problems
    assert len(document.problems) == 1
    # The rest still counts.
    assert read_toml('tier = "pro"\n' + text, "f").layer()["tier"].value == "pro"


def test_an_empty_dialect_is_none() -> None:
    found = read_toml('dialect = "gel"\n[tools.a]\ndialect = ""', "f")
    assert "dialect" not in found.layer("tool", "a")
    assert "unknown dialect ''" in found.problems[0]


def test_what_is_no_table_is_no_profile() -> None:
    found = read_toml('profile = "p"\nprofiles.p = 3', "f")
    assert found.layers.keys() == {("", "")}
    assert "there is no profile 'p'" in found.problems[1]


def test_a_wrong_entry_costs_only_itself() -> None:
    found = read_toml(
        'exclude_fields = ["secret", 3]\n[redact_patterns]\nbad = "("\ngood = "x+"\n'
        '[lists]\na = ["-"]\nb = ["-x"]\nc = []\n[reply]\nsummary = 3\nwarnings = ["w"]',
        "f",
    )
    assert {name: given.value for name, given in found.layer().items()} == {
        "exclude_fields": ("secret",),
        "redact_patterns": {"good": "x+"},
        "lists": {"b": ("-x",), "c": ()},
        "reply": {"warnings": ["w"]},
    }
    assert [problem.partition(":")[0] for problem in found.problems] == [
        f"f, line {line}, column 1" for line in (1, 3, 6, 10)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "f, line 1, column 5: not TOML: invalid value"),
        ("tokens = 500\ntokens = 600", "f, line 2, column 13: not TOML: cannot overwrite a value"),
        ('hint = "x\n"', "f, line 1, column 10: not TOML: illegal character"),
        ("[tools", "f, line 1, column 7: not TOML: expected ']'"),
        ("a = [1,\n 2", "f, line 2, column 3: not TOML: unclosed array"),
        ("a = " + "[" * 100_000, "f: not TOML: nested too deeply"),
        (
            "\nreply.summary" + ".a" * 2000 + " = 3",
            "f, line 2, column 1: not TOML: a key of more than 64 parts",
        ),
        ("a = " + "9" * 10_000, "f: not TOML: "),
        ("\r\n\r\na = =", "f, line 3, column 5: not TOML"),
    ],
)
def test_broken_toml(text: str, said: str) -> None:
    with pytest.raises(Broken) as error:
        read_toml(text, "f")
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_a_file_without_our_table() -> None:
    assert read_toml("[project]\n", "pyproject.toml").problems == (
        "pyproject.toml has no table [tool.mcp-envelope]",
    )
    assert read_toml("tool.mcp-envelope = 3", "pyproject.toml").problems == (
        "pyproject.toml, line 1, column 6: tool.mcp-envelope: expected a table, not 3",
    )


@settings(max_examples=examples(150))
@given(
    st.dictionaries(
        st.sampled_from(
            ["tokens", "lists", "tools", "profiles", "hint", "redact", "workspace", "x", "profile"]
        ),
        st.recursive(
            st.integers(-5, 500).map(str) | st.sampled_from(["true", "'x'", "1.5", "[]", "['a', 3]"]),
            lambda inner: st.dictionaries(
                st.sampled_from(["tokens", "base", "a", "b", "lists"]), inner, max_size=3
            ).map(lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"),
            max_leaves=5,
        ),
    )
)
def test_any_valid_toml_is_read(document: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in document.items())
    for problem in read_toml(text, "f").problems:
        assert problem.startswith("f, line ")


RESPONSE_WRONG = {
    "top": ('{"globl": {}}', "r, line 1, column 2: there is no key 'globl', did you mean global?"),
    "global": ('{"global": 3}', "r, line 1, column 2: global: expected an object, not 3"),
    "root": ("[]", "r: expected an object, not a list"),
    "setting": (
        '{"global": {\n "profil": "debug"}}',
        "r, line 2, column 2: there is no setting 'profil', did you mean profile?",
    ),
    "global has no more": ('{"global": {"tokens": 5}}', "there is no setting 'tokens'"),
    "tool": (
        '{"tool_overrides": {"a": {"include": []}}}',
        "r, line 1, column 27: there is no setting 'include' for the tool a, did you mean include_only?",
    ),
    "tools": ('{"tool_overrides": []}', "tool_overrides: expected an object, not a list"),
    "surrogate": ('{"global": {"profile": "\\ud800"}}', "profile = '\\ud800': not valid UTF-8"),
}


@pytest.mark.parametrize(("text", "said"), RESPONSE_WRONG.values(), ids=RESPONSE_WRONG)
def test_wrong_response_config(text: str, said: str) -> None:
    [problem] = read_own_file(Scalpel.file, text, "r").problems
    assert said in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{\n  // fine\n  "global": {"profile" "x"}}',
            "r, line 3, column 24: not JSON: expecting ':' delimiter",
        ),
        ("", "r, line 1, column 1: not JSON"),
        ('{"a": /* no end', "r, line 1, column 7: not JSON"),
        ("[" * 100_000, "r: not JSON: nested too deeply"),
        ("9" * 10_000, "r: not JSON"),
    ],
)
def test_broken_response_config(text: str, said: str) -> None:
    with pytest.raises(Broken) as error:
        read_own_file(Scalpel.file, text, "r")
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    "text", ["{}", '{"global": {}}', '{"global": null, "tool_overrides": {"a": null}}', '{"$schema": "x"}']
)
def test_little_is_enough(text: str) -> None:
    document = read_own_file(Scalpel.file, text, "r")
    assert (any(document.layers.values()), document.problems) == (False, ())


def test_tools_by_pattern() -> None:
    document = read_toml(
        '[tools.search]\nhint="1"\n[tools."*"]\nhint="2"\n[tools."s*"]\nhint="3"\n[tools."sea?ch"]\nhint="4"',
        "f",
    )
    assert [layer["hint"].value for layer in document.for_tool("search")] == ["2", "3", "4", "1"]
    assert [layer["hint"].value for layer in document.for_tool("Search")] == ["2"]
    assert document.for_tool(None) == Contents().for_tool("search") == []

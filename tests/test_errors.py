"""The catalogue; the codes that exceptions get; and what is never shown of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import importlib
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_envelope import codes
from mcp_envelope.codes import CATALOGUE, GENERAL, Catalogue, Code, Problem
from mcp_envelope.errors import RULES, passes_through, problem_of
from mcp_envelope.scrubbing import scrub

from .conftest import examples

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
TRANSCEND = (
    "MAP_NOT_BUILT NODE_NOT_FOUND BAD_NODE_ID FILE_DELETED SYMBOL_NOT_FOUND LSP_UNAVAILABLE LSP_FAILED"
    " LSP_TIMEOUT BAD_ARGS INTERNAL"
)
ELEVEN = (
    "invalid_argument invalid_path forbidden not_found timeout too_large resource_exhausted not_implemented"
    " upgrade_required dependency_unavailable internal_error"
)
OURS = (
    "RESULT_TOO_LARGE HANDLE_EXPIRED HANDLE_UNKNOWN HANDLE_DELETED BAD_QUERY BAD_PATH UPSTREAM_DIED"
    " UPSTREAM_TIMEOUT VAULT_UNAVAILABLE"
)


# The catalogue


def test_the_published_codes_are_all_there() -> None:
    for name in TRANSCEND.split():
        assert CATALOGUE[name].name == CATALOGUE.name(name.lower()) == name
    for spelling in ELEVEN.split():
        code = CATALOGUE.find(spelling)
        assert code is not None
        assert code.general == CATALOGUE.general(code.name) == spelling
    assert set(ELEVEN.split()) == GENERAL
    assert set(OURS.split()) <= set(CATALOGUE)
    assert CATALOGUE.find("invalid_argument") is CATALOGUE["BAD_ARGS"]
    assert CATALOGUE.find("Internal_Error") is CATALOGUE["INTERNAL"]


@pytest.mark.parametrize("code", CATALOGUE.values(), ids=list(CATALOGUE))
def test_every_code_is_complete(code: Code) -> None:
    for words in (code.meaning, code.hint):
        assert re.fullmatch(r"[A-Z`].*\.", words), words
    assert code.general in GENERAL
    assert CATALOGUE.find(code.name.lower()) is code
    assert CATALOGUE.find(f" {code.name} ") is code
    # What we say ourselves passes our own scrubbing.
    for words in (code.meaning, code.hint):
        assert scrub(words) == words


def test_a_server_adds_codes() -> None:
    mine = Catalogue(CATALOGUE.values())
    code = Code("QUOTA_SPENT", "The quota is spent.", "Wait until tomorrow.", kind="limit")
    assert mine.register(code) is code
    assert (
        mine.register(Code("QUOTA_SPENT", "The quota is spent.", "Wait until tomorrow.", kind="limit"))
        == code
    )
    assert mine.find("quota_spent") is code
    assert mine.general("QUOTA_SPENT") == "resource_exhausted"
    assert mine.problem("quota_spent") == Problem("QUOTA_SPENT", code.meaning, code.hint)
    assert "QUOTA_SPENT" not in CATALOGUE
    assert CATALOGUE.find("quota_spent") is None
    assert hash(code) == hash(
        Code("QUOTA_SPENT", "The quota is spent.", "Wait until tomorrow.", kind="limit")
    )


def test_codes_that_cannot_be_added() -> None:
    mine = Catalogue(CATALOGUE.values())
    with pytest.raises(ValueError, match="NOT_FOUND is taken"):
        mine.register(Code("NOT_FOUND", "Other.", "Other."))
    with pytest.raises(ValueError, match="INVALID_ARGUMENT is taken: BAD_ARGS"):
        mine.register(Code("INVALID_ARGUMENT", "Other.", "Other."))
    with pytest.raises(ValueError, match="UPPER_SNAKE, such as QUOTA_SPENT"):
        Code("quota-spent", "Other.", "Other.")
    with pytest.raises(ValueError, match="unknown kind 'odd'"):
        Code("ODD", "Other.", "Other.", kind="odd")
    with pytest.raises(ValueError, match="the general codes are"):
        Code("ODD", "Other.", "Other.", general="odd")


def test_the_default_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "CATALOGUE", Catalogue(CATALOGUE.values()))
    code = codes.register(Code("QUOTA_SPENT", "The quota is spent.", "Wait."))
    assert codes.CATALOGUE.find("QUOTA_SPENT") is code


def test_a_code_that_nobody_registered() -> None:
    assert CATALOGUE.general("quotaSpent") == "resource_exhausted", "the set of general codes is closed"
    assert CATALOGUE.general("MY_OWN") == "internal_error"
    assert CATALOGUE.name("quota-spent") == "QUOTA_SPENT"
    assert CATALOGUE.problem("quota spent", "No.").code == "QUOTA_SPENT"


# Exceptions


def caught(action: Callable[[], object]) -> Exception:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def read(path: str) -> str:
    return Path(path).read_text()


def thrown(error: Exception, cause: BaseException | None = None) -> Exception:
    def throw() -> None:
        raise error from cause

    return caught(throw)


class Arguments(pydantic.BaseModel):
    symbolId: str = pydantic.Field(min_length=1)  # noqa: N815
    depths: list[int] = []
    kind: str = ""

    @pydantic.field_validator("kind")
    @classmethod
    def known_kind(cls, value: str) -> str:
        if value:
            raise ValueError(f"unknown kind: {value}")
        return value


class Depths(msgspec.Struct):
    depths: list[int]


class NoSuchThing(LookupError):
    pass


SCHEMA = {
    "type": "object",
    "properties": {"depths": {"type": "array", "items": {"type": "integer"}}},
    "required": ["depths"],
}
WRONG = {"depths": [1, "/home/me/x"]}


def tool(symbol: str, depth: int = 1) -> None:
    int("no", depth=depth)  # type: ignore[call-overload]


def foreign(module: str, name: str, base: type[Exception] = Exception) -> type[Exception]:
    return type(name, (base,), {"__module__": module})


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("depth must be positive"), "BAD_ARGS", "depth must be positive"),
        (ValueError("bad\nsecond line"), "BAD_ARGS", "bad"),
        (ValueError("in /home/me/p/a.py"), "BAD_ARGS", "in a.py"),
        (ValueError(3, "x"), "BAD_ARGS", CATALOGUE["BAD_ARGS"].meaning),
        (caught(lambda: json.loads("{")), "BAD_ARGS", "Expecting property name enclosed in double quotes"),
        (caught(lambda: b"\xff".decode()), "BAD_ARGS", "The text is not valid utf-8, position 0."),
        (caught(lambda: compile("\nsecret = = 1", "/a/b.py", "exec")), "BAD_ARGS", "Syntax error at line 2."),
        (caught(lambda: Arguments(symbolId="")), "BAD_ARGS", "symbolId: String should have at least 1 character"),
        (caught(lambda: Arguments(symbolId="a", kind="/home/me/k")), "BAD_ARGS", "kind: unknown kind: k"),
        (
            caught(lambda: msgspec.json.decode(b'{"depths":[1,"x"]}', type=Depths)),
            "BAD_ARGS",
            "depths.1: Expected `int`, got `str`",
        ),
        (caught(lambda: jsonschema.validate(WRONG, SCHEMA)), "BAD_ARGS", "depths.1: is not of type 'integer'"),
        (caught(lambda: jsonschema.validate({}, SCHEMA)), "BAD_ARGS", "'depths' is a required property"),
        (caught(lambda: jsonschema_rs.validate(SCHEMA, WRONG)), "BAD_ARGS", 'depths.1: is not of type "integer"'),
        (caught(lambda: inspect.signature(tool).bind(dept=1)), "BAD_ARGS", "Wrong arguments: missing a required"),
        (TypeError("tool() missing 1 required positional argument: 'a'"), "BAD_ARGS", "Wrong arguments: missing"),
        (TypeError("unsupported operand"), "INTERNAL", ""),
        (caught(lambda: tool("a")), "INTERNAL", ""),
        (KeyError("/home/me"), "INTERNAL", ""),
        (IndexError("list index out of range"), "INTERNAL", ""),
        (RuntimeError("secret"), "INTERNAL", ""),
        (AssertionError("secret"), "INTERNAL", ""),
        (LookupError("no symbol App"), "NOT_FOUND", "no symbol App"),
        (NoSuchThing("no symbol App"), "NOT_FOUND", "no symbol App"),
        (LookupError(object()), "INTERNAL", ""),
        (caught(lambda: read("/nowhere/a b.py")), "NOT_FOUND", "File not found: a b.py"),
        (caught(lambda: read("def secret():\n    pass")), "NOT_FOUND", "File not found."),
        (caught(lambda: read("/tmp")), "INVALID_PATH", "This is a directory: tmp"),
        (caught(lambda: os.listdir(__file__)), "INVALID_PATH", "Not a directory: test_errors.py"),
        (caught(lambda: os.mkdir("/tmp")), "INVALID_PATH", "It exists already: tmp"),
        (PermissionError(errno.EACCES, "no", "/etc/shadow"), "FORBIDDEN", "Not permitted: shadow"),
        (OSError(errno.EROFS, "no", "/etc/x"), "FORBIDDEN", "Read-only file system"),
        (OSError(errno.ENAMETOOLONG, "no", "x" * 999), "INVALID_PATH", "File name too long"),
        (OSError(errno.ENOSPC, "no"), "RESOURCE_EXHAUSTED", "No space left on device"),
        (OSError(errno.EMFILE, "no"), "RESOURCE_EXHAUSTED", "Too many open files"),
        (OSError(errno.EIO, "no"), "INTERNAL", ""),
        (OSError("text"), "INTERNAL", ""),
        (MemoryError(), "RESOURCE_EXHAUSTED", CATALOGUE["RESOURCE_EXHAUSTED"].meaning),
        (RecursionError("secret"), "RESOURCE_EXHAUSTED", CATALOGUE["RESOURCE_EXHAUSTED"].meaning),
        (TimeoutError("secret"), "TIMEOUT", CATALOGUE["TIMEOUT"].meaning),
        (caught(lambda: asyncio.run(asyncio.wait_for(asyncio.sleep(9), 0))), "TIMEOUT", ""),
        (concurrent.futures.TimeoutError(), "TIMEOUT", ""),
        (subprocess.TimeoutExpired(["/home/me/x"], 3), "TIMEOUT", CATALOGUE["TIMEOUT"].meaning),
        (foreign("httpx._exceptions", "TimeoutException")("secret"), "TIMEOUT", ""),
        (foreign("redis.exceptions", "ConnectionError")("secret"), "DEPENDENCY_UNAVAILABLE", ""),
        (foreign("elsewhere", "ConnectionError")("secret"), "INTERNAL", ""),
        (ConnectionResetError("secret"), "DEPENDENCY_UNAVAILABLE", CATALOGUE["DEPENDENCY_UNAVAILABLE"].meaning),
        (caught(lambda: importlib.import_module("nope.x")), "DEPENDENCY_UNAVAILABLE", "Python module not"),
        (ImportError("secret", name="def x(): secret"), "DEPENDENCY_UNAVAILABLE", ""),
        (caught(lambda: subprocess.run(["/opt/pyrite"])), "DEPENDENCY_UNAVAILABLE", "Program not found: pyrite"),
        (NotImplementedError("no Rust yet"), "NOT_IMPLEMENTED", "no Rust yet"),
        (foreign("fastmcp.exceptions", "ToolError")("index is stale"), "TOOL_FAILED", "index is stale"),
        (foreign("fastmcp.exceptions", "ToolError")("No such file: a.py"), "NOT_FOUND", "No such file: a.py"),
        (foreign("mcp.server.mcpserver.exceptions", "ToolError")("LSP_FAILED: gone"), "LSP_FAILED", "LSP"),
    ],
)  # fmt: skip
def test_exceptions_become_codes(error: Exception, code: str, message: str) -> None:
    problem = problem_of(error)
    assert problem.code == code
    assert problem.message.startswith(message)
    assert problem.message.strip()
    assert "secret" not in str(problem)
    assert problem.hint == CATALOGUE[code].hint


def test_paths_relative_to_the_root_or_as_the_client_gave_them() -> None:
    error = caught(lambda: read("/nowhere/p/a b.py"))
    assert problem_of(error, root="/nowhere/p").message == "File not found: a b.py"
    assert problem_of(error, root="/nowhere").message == "File not found: p/a b.py"
    assert problem_of(error, known=["/nowhere/p/a b.py"]).message == "File not found: /nowhere/p/a b.py"
    # The example of the published document.
    assert (
        problem_of(caught(lambda: read("/missing.py")), known=["/missing.py"]).message
        == "File not found: /missing.py"
    )


def test_a_wrong_call_is_the_callers_mistake_only_if_it_is_of_the_tool() -> None:
    def adapter(**arguments: Any) -> Problem:
        try:
            tool(**arguments)
        except TypeError as error:
            return problem_of(error)
        raise AssertionError

    # Python 3.13 and later add a suggestion.
    assert adapter(dept=1).message.startswith("Wrong arguments: got an unexpected keyword argument 'dept'")
    assert adapter(dept=1).details == {"fields": ["dept"]}
    assert adapter(symbol="a").code == "INTERNAL"
    deep = caught(lambda: tool())  # type: ignore[call-arg]
    assert problem_of(deep, tool="tool").code == "BAD_ARGS"
    assert problem_of(deep, tool="another").code == "INTERNAL"
    assert problem_of(deep).code == "INTERNAL"


def test_validation_names_five_fields_and_counts_the_rest() -> None:
    problem = problem_of(caught(lambda: Arguments(symbolId="a", depths=["x"] * 8)))  # type: ignore[list-item]
    assert problem.message.count("depths.") == 5
    assert problem.message.endswith("; and 3 more")
    assert problem.details == {"fields": [f"depths.{number}" for number in range(8)]}


def test_unexpected_ones_are_in_the_log_under_the_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mcp_envelope"):
        problem = problem_of(thrown(RuntimeError("the secret")), correlation_id=lambda: "id-1")
    assert problem.details == {"correlationId": "id-1"}
    assert "id-1" in problem.message
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("mcp_envelope", "ERROR")
    assert "id-1" in record.getMessage()
    assert "the secret" in caplog.text
    assert "Traceback" in caplog.text
    caplog.clear()
    problem_of(ValueError("expected"))
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    ids = {str(problem_of(KeyError("x")).details) for _ in range(50)}
    assert len(ids) == 50


def test_stated_causes_tell_more_than_what_merely_happened_before() -> None:
    assert problem_of(thrown(RuntimeError("x"), TimeoutError())).code == "TIMEOUT"
    assert problem_of(thrown(ValueError("mine"), TimeoutError())).message == "mine"

    def before() -> None:
        try:
            raise TimeoutError
        except TimeoutError:
            raise RuntimeError("x")  # noqa: B904

    assert problem_of(caught(before)).code == "INTERNAL"
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert problem_of(first).code == "INTERNAL"


def test_what_an_sdk_wraps_is_told_by_its_cause() -> None:
    wrapper = foreign("mcp.server.mcpserver.exceptions", "ToolError")
    text = "Error executing tool read: [Errno 2] No such file: '/home/me/x.py'"
    assert (
        problem_of(thrown(wrapper(text), FileNotFoundError(2, "no", "/home/me/x.py"))).message
        == "File not found: x.py"
    )
    assert problem_of(thrown(wrapper(text), KeyError("x"))).code == "INTERNAL"
    assert problem_of(thrown(wrapper("index is stale"), KeyError("x"))).message == "index is stale"


def test_the_most_telling_member_of_a_group() -> None:
    group = ExceptionGroup(
        "all", [KeyError("a"), ExceptionGroup("some", [TimeoutError(), Failure("NOT_FOUND", "no x")])]
    )
    problem = problem_of(group, correlation_id=lambda: "id-1")
    assert (problem.code, problem.message) == ("NOT_FOUND", "no x")
    assert problem.details == {"correlationId": "id-1", "otherErrors": 2}
    assert problem_of(ExceptionGroup("all", [TimeoutError()])).details is None


@dataclass
class Failure(Exception):
    code: str
    message: str
    hint: str = ""
    details: Any = None

    @property
    def problem(self) -> Problem:
        return Problem(self.code, self.message, self.hint, self.details)


def test_a_failure_carries_its_problem() -> None:
    failure = Failure(
        "quota-spent", "No more in /home/me/x.db.\nTry later.", "See /home/me/y.md", {"at": "/home/me/z.py"}
    )
    assert problem_of(failure, root="/home/me") == Problem(
        "QUOTA_SPENT", "No more in x.db.\nTry later.", "See y.md", {"at": "z.py"}
    )
    assert problem_of(Failure("not_found", "")) == CATALOGUE.problem("NOT_FOUND")
    assert problem_of(thrown(RuntimeError("x"), failure)).code == "QUOTA_SPENT"


def test_broken_exceptions() -> None:
    class Broken(ValueError):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        @property
        def problem(self) -> Problem:
            raise RuntimeError("no problem")

    logging.getLogger("mcp_envelope").disabled = True
    try:
        assert problem_of(Broken()).code == "INTERNAL"
    finally:
        logging.getLogger("mcp_envelope").disabled = False


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(2),
        GeneratorExit(),
        BaseExceptionGroup("x", [ValueError("a"), KeyboardInterrupt()]),
        type("Cancelled", (BaseException,), {"__module__": "trio"})(),
    ],
)
def test_what_passes_through(error: BaseException) -> None:
    assert passes_through(error)
    with pytest.raises(type(error)):
        problem_of(error)
    assert not passes_through(ValueError())


@pytest.mark.process
def test_importing_it_brings_no_library() -> None:
    check = (
        "import sys, mcp_envelope.errors; "
        "print([n for n in ('msgspec', 'pydantic', 'jsonschema', 'logging', 'asyncio', 'mcp') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The property: nothing shown contains source, a traceback or an absolute path.

MARK = "xqz"  # in every name that must not be seen
names = st.from_regex(r"[a-z]{3,8}", fullmatch=True).map(lambda name: f"{name}_{MARK}")
folders = st.lists(names, min_size=2, max_size=4)
kinds = st.sampled_from(
    ["/home/{}", "/opt/{}", "C:\\Users\\{}", "D:/{}", "\\\\host\\{}", "file:///srv/{}", "~/{}"]
)


@st.composite
def paths(draw: st.DrawFn) -> str:
    kind = draw(kinds)
    between = "\\" if "\\" in kind else "/"
    return kind.format(between.join([*draw(folders), "last.py"]))


@st.composite
def sources(draw: st.DrawFn) -> str:
    a, b, c = (draw(names) for _ in range(3))
    return draw(
        st.sampled_from(
            [
                f"def {a}({b}):\n    {c} = {b} + 1\n    return {c}\n",
                f"class {a}:\n    def {b}(self):\n        return {c}\n",
                f"from {a} import {b}\nimport {c}\n",
                f"{a} = {b}({c})\nprint({a})\n",
                f"for {a} in {b}:\n    {c}({a})\n",
                f"async def {a}({b}): return {c}",
                f"function {a}({b}) {{\n  return {c};\n}}\n",
                f"const {a} = ({b}) => {{ {c}() }}",
                f"```python\n{a} {b}\n```",
            ]
        )
    )


@st.composite
def traces(draw: st.DrawFn) -> str:
    """A real traceback, of generated code in a file of a generated name."""
    path, function = draw(paths()), draw(names)
    code = compile(f"def {function}():\n    raise KeyError({function!r})\n{function}()", path, "exec")
    try:
        exec(code, {})
    except KeyError:
        return traceback.format_exc()
    raise AssertionError


@st.composite
def leaky_texts(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(["", "cannot parse: ", "It failed.\n", "bad value in ", "error:\n\n"]))
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        piece = draw(st.one_of(paths(), sources(), traces()))
        if "\n" not in piece and piece.endswith("last.py"):
            quote = draw(st.sampled_from(["", "'", '"', "`"]))
            text += f"{quote}{piece}{quote}{draw(st.sampled_from([' ', ': ', ', ', chr(10), '. And ']))}"
        elif piece.startswith("```"):
            text += f"\n{piece}\n"
        else:
            # In the middle of a sentence, too.
            text += (
                draw(st.sampled_from(["", "\n"]))
                + piece
                + draw(st.sampled_from(["", "\n", "\nThat was it. "]))
            )
    return text


def of_pydantic(text: str) -> Exception:
    return caught(
        lambda: Arguments.model_validate({"symbolId": [text], "depths": {text: text}, "kind": text})
    )


def of_jsonschema(text: str) -> Exception:
    return caught(lambda: jsonschema.validate({"depths": [text], text: text}, SCHEMA))


def of_file(text: str) -> Exception:
    return FileNotFoundError(errno.ENOENT, text, text.replace("\0", ""))


def of_failure(text: str) -> Exception:
    return Failure(
        "NOT_FOUND", text, text, {text: [text], "stack": text, "error": ValueError(text), "in": {"a": text}}
    )


MAKERS: list[Callable[[str], Exception]] = [
    ValueError,
    KeyError,
    RuntimeError,
    LookupError,
    NotImplementedError,
    ImportError,
    TimeoutError,
    PermissionError,
    TypeError,
    OSError,
    SyntaxError,
    foreign("fastmcp.exceptions", "ToolError"),
    lambda text: ValueError(text, text),
    lambda text: ImportError(text, name=text, path=text),
    lambda text: SyntaxError(text, (text, 3, 4, text)),
    lambda text: UnicodeDecodeError(text, b"x", 0, 1, text),
    lambda text: subprocess.CalledProcessError(1, [text], text, text),
    lambda text: json.JSONDecodeError(text, text, 0),
    of_pydantic,
    of_jsonschema,
    of_file,
    of_failure,
]
# Those whose messages are shown: they get most of the tries.
TELLING: list[Callable[[str], Exception]] = [ValueError, LookupError, of_pydantic, of_failure]


@st.composite
def leaky_exceptions(draw: st.DrawFn, depth: int = 2) -> Exception:
    error = draw(st.sampled_from([*MAKERS, *TELLING * 4]))(draw(leaky_texts()))
    error.add_note(draw(st.one_of(paths(), sources())))
    cause = draw(leaky_exceptions(depth - 1)) if depth and draw(st.booleans()) else None
    if depth and draw(st.integers(0, 3)) == 0:
        error = ExceptionGroup(draw(paths()), [error, draw(leaky_exceptions(depth - 1))])
    # Raised by code whose source must not be shown, in a file whose path must not be shown, either.
    path, function = draw(paths()), draw(names)
    code = compile(f"def {function}():\n    raise error from cause\n{function}()", path, "exec")
    try:
        exec(code, {"error": error, "cause": cause})
    except Exception as raised:
        return raised
    raise AssertionError


def everything_shown(problem: Problem) -> str:
    return "\n".join(
        [problem.code, problem.message, problem.hint, json.dumps(problem.details, ensure_ascii=False)]
    )


@settings(max_examples=examples(60))
@given(leaky_exceptions())
def test_nothing_shown_holds_source_traceback_or_absolute_path(error: Exception) -> None:
    logging.getLogger("mcp_envelope").disabled = True
    try:
        problem = problem_of(error)
    finally:
        logging.getLogger("mcp_envelope").disabled = False
    shown = everything_shown(problem)
    assert MARK not in shown
    assert "Traceback (" not in shown
    assert 'File "' not in shown
    assert not re.search(r"(?:^|[\s\"'=(])(?:/(?:home|opt|srv)|[A-Z]:[\\/]|~/|file:|\\\\host)", shown), shown
    assert problem.message.strip()
    assert len(problem.message) <= 500


@given(st.text(), st.sampled_from(MAKERS))
def test_any_message(text: str, maker: Callable[[str], Exception]) -> None:
    logging.getLogger("mcp_envelope").disabled = True
    try:
        problem = problem_of(maker(text))
    except UnicodeEncodeError:
        return  # the maker itself
    finally:
        logging.getLogger("mcp_envelope").disabled = False
    everything_shown(problem).encode()
    assert problem.message.strip()


# The document


def table(*rows: tuple[str, ...]) -> str:
    lines = [
        f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in row)} |" for row in rows
    ]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def tables() -> dict[str, str]:
    # What a person can do about a code, and what becomes of an exception, is written in the document alone.
    rows = [line.removeprefix("| ").split(" | ") for line in DOCUMENT.read_text("utf-8").splitlines()]
    written = {row[0]: row for row in rows if len(row) > 2}
    codes = [
        (f"`{code.name}`", code.meaning, code.hint, written[f"`{code.name}`"][3], f"`{code.general}`")
        for code in CATALOGUE.values()
    ]
    rules = []
    for classes in RULES:
        names = ", ".join(f"`{name}`" for name in classes.split())
        rules.append((*written[names][:2], written[names][2].removesuffix(" |")))
    return {
        "codes": table(("native, transcend, gel", "meaning", "next step", "recovery", "scalpel"), *codes),
        "exceptions": table(("exception", "code", "what is shown"), *rules),
    }


@pytest.mark.parametrize("name", ["codes", "exceptions"])
def test_the_document_has_the_table(name: str) -> None:
    """`UPDATE_DOCUMENTS=1` rewrites it."""
    document = DOCUMENT.read_text("utf-8")
    opening, closing = f"<!-- {name}: made by tests/test_errors.py -->\n", f"<!-- end of {name} -->"
    before, _, rest = document.partition(opening)
    _, _, after = rest.partition(closing)
    wanted = f"{before}{opening}{tables()[name]}\n{closing}{after}"
    if os.environ.get("UPDATE_DOCUMENTS"):
        DOCUMENT.write_text(wanted, "utf-8")
    assert document == wanted or os.environ.get("UPDATE_DOCUMENTS")


def test_the_examples_of_the_document_run() -> None:
    for example in re.findall(
        r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE
    ):
        exec(compile(example, "errors.md", "exec"), {})

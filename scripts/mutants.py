"""Do the tests notice when the code is wrong? `make mutants`, or `python scripts/mutants.py --module fit/pages`.

Takes a random sample of the small changes that cosmic-ray's operators can make to the modules that carry promises:
first of the places, then of the changes at each, so that an operator that can be replaced in ten ways weighs no
more than a number. Each mutant is run in a copy of the tree against the tests nearest to its module. A mutant is
killed if they fail or hang; each that survives is printed. A seed always gives the same sample.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import hypothesis.stateful
import jsonschema_rs
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "src/mcp_envelope"
# What the tests need, which is loaded once for all.
LOADED: Final = hypothesis, jsonschema_rs
# Bytes that a mutant may take, and seconds after which it counts as hanging though it does nothing.
MEMORY, PATIENCE = 4 << 30, 900
# The nearest tests of each module, quick ones first.
NEAREST: Final = {
    "lanes": "test_lanes.py dialects/test_recognition.py fit/test_survey.py dialects/test_budgets.py "
    "test_outcome.py test_envelope.py",
    "payload": "test_payload.py test_gateway.py test_outcome.py dialects/test_recognition.py test_envelope.py",
    "fit/documents": "fit/test_documents.py fit/test_selection.py dialects/test_budgets.py test_envelope.py "
    "dialects/test_record_formats.py",
    "fit/blocks": "fit/test_blocks.py test_outcome.py dialects/test_attachments.py dialects/test_budgets.py",
    "fit/pages": "fit/test_pages.py vault/test_pages.py vault/test_pages_in_dialects.py",
    "fit/survey": "fit/test_selection.py fit/test_survey.py",
    "dialects/native": "dialects/test_native.py dialects/test_record_formats.py dialects/test_golden.py "
    "dialects/test_recognition.py test_envelope.py",
    "proxy/interceptor": "proxy/test_interceptor.py proxy/test_tool_lists.py proxy/test_reads.py",
}


def mutants(code: str, chosen: random.Random) -> Iterator[str]:
    """Yield mutated code, one mutant for each place, in random order."""
    tree = get_ast(code)
    operators = [get_operator(name) for name in operator_names()]
    places: dict[tuple[int, int], list[tuple[object, int]]] = {}
    for operator in [made() for made in operators if not made.arguments()]:
        found = [place for node in ast_nodes(tree) for place, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(found):
            places.setdefault(place, []).append((operator, occurrence))
    before = _behaviour(code)
    for place in chosen.sample(sorted(places), len(places)):
        try:
            mutated = mutate_code(code, *chosen.choice(places[place]))
        except AttributeError:
            # Its exception replacer can't rename what is looked up in a module.
            continue
        if _behaviour(mutated) not in (None, before):
            yield mutated


def _behaviour(code: str) -> str | None:
    """The code without its annotations, which nothing evaluates; None if it isn't valid."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


def changed(code: str, mutated: str) -> str:
    """The changed lines, with their numbers."""
    old, new = code.splitlines(), mutated.splitlines()
    lines: list[str] = []
    for kind, start, end, into, until in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            lines += [f"  {start + 1 + n:4} - {line.strip()}" for n, line in enumerate(old[start:end])]
            lines += [f"  {into + 1 + n:4} + {line.strip()}" for n, line in enumerate(new[into:until])]
    return "\n".join(lines)


def passes(tree: Path, tests: str, seconds: int | None = None) -> tuple[bool, float]:
    """Whether the tests pass, and how many seconds of a processor they took. Others may use it as well, so only
    these seconds count: a mutant that takes more than so many hangs."""
    files = [f"tests/{test}" for test in tests.split()]
    sys.stdout.flush()
    # A copy of this process, which has loaded already what the tests need besides the package.
    if (child := os.fork()) == 0:
        os.setsid()
        os.chdir(tree)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.alarm(PATIENCE)
        os.environ.update(PYTHONPATH=str(tree / "src"), QUICK="1")
        sys.path[:0] = [str(tree / "src"), str(tree)]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", *files]))
    _, status, used = os.wait4(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status == 0, used.ru_utime + used.ru_stime


def tested(tree: Path, module: str, count: int, seed: int) -> tuple[int, int]:
    """Return how many of the mutants of a module were killed, and how many there were."""
    path, tests = tree / PACKAGE / f"{module}.py", NEAREST[module]
    passed, taken = passes(tree, tests)
    if not passed:
        sys.exit(f"{module}: its tests fail without any change: {tests}")
    seconds = round(5 + 2 * taken)
    code = path.read_text()
    killed = tried = 0
    for mutated, _ in zip(mutants(code, random.Random(f"{module} {seed}")), range(count), strict=False):
        # Python takes a compiled module for current if its size and its second are the same.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_text(mutated)
        tried += 1
        if passes(tree, tests, seconds)[0]:
            print(f"{module}: survived\n{changed(code, mutated)}", flush=True)
        else:
            killed += 1
    path.write_text(code)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
    print(f"{module}: {killed} of {tried} killed", flush=True)
    return killed, tried


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of the modules that carry promises.")
    parser.add_argument(
        "--module", action="append", choices=NEAREST, help="only this module; may be repeated"
    )
    parser.add_argument("--count", type=int, default=10, help="mutants per module (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="which sample to take (default: 1)")
    given = parser.parse_args()
    os.nice(10)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        scores = [tested(tree, module, given.count, given.seed) for module in given.module or NEAREST]
    killed, tried = sum(score[0] for score in scores), sum(score[1] for score in scores)
    print(f"{killed} of {tried} mutants killed: {killed / max(tried, 1):.0%}")


if __name__ == "__main__":
    main()

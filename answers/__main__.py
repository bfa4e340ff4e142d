"""`make answers`: do answers survive the cut? It writes docs/answers.md, which says what is measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcp_envelope.vault.vault import Vault, open_vault

from . import report
from .contestants import Contestant, Ours, head_and_tail, prefix, preview, shrinkfit
from .data import DataSet, NotInstalled, data_sets
from .questions import Question, is_right, questions
from .reader import NOT_KNOWN, Reply, first_answer, further_call, second_answer
from .report import Outcome

BUDGETS = (2_000, 8_000)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make answers", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help="some of the data sets (default: all)")
    parser.add_argument(
        "--missed", action="store_true", help="print what ours doesn't answer, or answers wrongly"
    )
    parser.add_argument(
        "--no-page", action="store_true", help="leave docs/answers.md and docs/answers.svg alone"
    )
    options = parser.parse_args()
    try:
        every = data_sets()
    except NotInstalled as problem:
        print(f"answers: {problem}", file=sys.stderr)
        return 1
    names = [data.name for data in every]
    if unknown := sorted(set(options.sets) - set(names)):
        parser.error(f"there is no data set {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [data for data in every if data.name in (options.sets or names)]
    with tempfile.TemporaryDirectory() as folder:
        vault = open_vault(str(Path(folder, "vault.db")))
        assert vault is not None
        contestants = all_contestants(vault)
        outcomes = [outcome for data in chosen for outcome in asked(data, contestants, options.missed)]
        vault.close()
    print("\n".join(report.table(outcomes)))
    if not options.no_page and chosen == every:
        report.save(outcomes, every)
    return 0


def all_contestants(vault: Vault) -> dict[str, Contestant]:
    return {
        "ours": Ours(vault),
        "ours, without profile and selection": Ours(vault, plain=True),
        "shrinkfit 0.6.0": shrinkfit,
        "head and tail": head_and_tail,
        "byte prefix": prefix,
        "preview of 2 KB": preview,
    }


def asked(data: DataSet, contestants: Mapping[str, Contestant], missed: bool = False) -> Iterator[Outcome]:
    """Every question about a data set to every contestant."""
    print(f"{data.name} …", file=sys.stderr, flush=True)
    for budget in BUDGETS:
        for name, contestant in contestants.items():
            reply = Reply(contestant(data, budget))
            reads = isinstance(contestant, Ours)
            for question in questions(data):
                first, second = first_answer(question, reply), NOT_KNOWN
                call = further_call(question, reply) if reads and first is NOT_KNOWN else None
                texts = contestant.read(call, budget) if call and isinstance(contestant, Ours) else []
                if texts:
                    second = second_answer(question, texts)
                outcome = Outcome(
                    question, name, budget, _verdict(question, first), _verdict(question, second), reads
                )
                if missed and name == "ours" and "right" not in (outcome.first, outcome.second):
                    found = first if first is not NOT_KNOWN else second
                    shown = "not known" if found is NOT_KNOWN else str(found)[:150]
                    print(f"{budget} {data.name}: {question.words}\n    {str(question.gold)[:150]} — {shown}")
                    print(f"    {call} → {' | '.join(texts)[:400]}")
                yield outcome


def _verdict(question: Question, answer: object) -> str:
    return "not known" if answer is NOT_KNOWN else "right" if is_right(answer, question) else "wrong"


if __name__ == "__main__":
    sys.exit(main())

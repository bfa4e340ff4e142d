"""`make lab`: real clients with a scripted model, directly and through the proxy. See README.md."""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import date

from . import report
from .cases import KINDS, Limit, Observation, Verdict, bisect, judge, observe
from .clients import CLIENTS, Client, NotInstalled
from .model import Model
from .report import Measured, Weight
from .session import Session, Way, play

_SECONDS = 150.0


def measure(client: Client, model: Model, limits: bool, way: Way = "proxy") -> Measured:
    """All that the lab asks of one client."""
    measured = Measured(client.name, client.package, client.install(), date.today().isoformat(), client.about)
    say(f"{client.name} {measured.version}")
    direct, proxied = list[Observation](), list[Observation]()
    before = step(client, model, "directly", observe(direct, read_on=False), "direct")
    measured.add_direct(before.client_info, direct, before.tools)
    measured.problem = before.problem
    if not direct:
        return measured
    what = "through the proxy" if way == "proxy" else "with our adapter"
    after = step(client, model, what, observe(proxied, read_on=True), way)
    measured.verdicts = verdicts(direct, proxied, after)
    measured.weight = Weight.of(before.tools, after.tools)
    for kind, tool in KINDS if limits else ():
        limit = Limit(kind, tool)
        session = step(client, model, f"limit of {kind}", bisect(limit), "direct")
        if session.problem:
            limit.what = f"{limit.what} ({session.problem})".strip()
        measured.limits.append(limit)
    return measured


def verdicts(direct: list[Observation], proxied: list[Observation], session: Session) -> list[Verdict]:
    """The cases in turn; one that a session did not reach has failed there."""
    calls = [call for call, _ in session.calls]
    wires = session.sent if len(session.sent) == len(calls) else [None] * len(calls)
    at = [number for number, call in enumerate(calls) if call.tool != "envelope_read"]
    found = [judge(a, b, wires[n]) for a, b, n in zip(direct, proxied, at, strict=False)]
    for missed in direct[len(found) :]:
        problem = f"the session ended before it: {session.problem}"
        found.append(Verdict(missed.case.name, 0, 0, 0, (0, 0), None, None, (problem,)))
    return found


def step(client: Client, model: Model, what: str, script: object, way: Way) -> Session:
    say(f"  {what} …", end=" ")
    session = play(client, model, script, way, _SECONDS)  # type: ignore[arg-type]
    say(
        f"{len(session.calls)} calls, {session.seconds:.0f} s{'; ' + session.problem if session.problem else ''}"
    )
    return session


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def main() -> int:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__)
    parser.add_argument(
        "clients", nargs="*", metavar="CLIENT", help=f"some of {', '.join(names)} (default: all)"
    )
    parser.add_argument("--no-limits", action="store_true", help="only the cases: skip the search for limits")
    parser.add_argument(
        "--inside", action="store_true", help="with the adapters of docs/hosts.md, instead of the proxy"
    )
    parser.add_argument("--fresh", action="store_true", help="install the newest versions")
    parser.add_argument(
        "--no-page", action="store_true", help="leave docs/clients.md and lab/results.json alone"
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.clients) - set(names)):
        parser.error(f"there is no client {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [client for client in CLIENTS if client.name in (options.clients or names)]
    way: Way = "inside" if options.inside else "proxy"
    if options.inside:
        # Clients and what they show are on the page already; this is about the adapters.
        chosen = [client for client in chosen if client.is_host]
        options.no_page = options.no_limits = True
    for folder in {client.folder for client in chosen} if options.fresh else ():
        shutil.rmtree(folder, ignore_errors=True)
    model, results, failed = Model(), report.load(), list[str]()
    try:
        for client in chosen:
            try:
                measured = measure(client, model, not options.no_limits, way)
            except NotInstalled as problem:
                say(f"{client.name}: not installed. {problem}")
                failed.append(client.name)
                continue
            say(report.summary(measured))
            results[client.name] = report.merged(results.get(client.name), measured)
            if not measured.verdicts or any(verdict.problems for verdict in measured.verdicts):
                failed.append(client.name)
            if not options.no_page:
                report.save(results, [client.name for client in CLIENTS])
    finally:
        model.close()
    say(f"\n{len(chosen) - len(failed)} of {len(chosen)} clients: every case holds." + (
        f" Not so: {', '.join(failed)}." if failed else ""
    ))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

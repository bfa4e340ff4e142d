"""The settings of a running program: `Settings` says which policy applies to a call.

Strategy: a call that finds nothing changed pays for one look at the clock, one snapshot of the environment
and one look into a dictionary. At most once a second, one thread looks at the files; the others go on with
what there is. A state holds what the files say and the policies made from it, and is replaced as a whole.
What is wrong with a file or a variable is said once, and again only if it was mended in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from .environment import Environment, Snapshot
from .layers import Document, Sources, compose, without_unknown_profiles
from .table import BUDGET_ARGUMENT, Policy
from .watch import response_config, settings_file

# Names of tools come from outside; so many policies are kept before all are made anew.
_KEPT: Final = 2048
# Variables change their values, too; so many complaints are remembered as said.
_REMEMBERED: Final = 1000


class _State:
    """What the files say, and the policies that follow."""

    __slots__ = ("asked", "config", "file", "policies", "response")

    def __init__(self, file: Document, response: Document, config: str | None) -> None:
        self.file = file
        self.response = response
        self.config = config
        self.policies: dict[tuple[str | None, Snapshot], Policy] = {}
        # A policy stays beside what was made of it, so that its id cannot come to mean another one.
        self.asked: dict[tuple[int, int], tuple[Policy, Policy]] = {}


class Settings:
    """Settings from a file, its profiles and tools, and the environment, kept up to date.

    `path` names the file; otherwise `MCP_ENVELOPE_CONFIG` does, or it is the nearest one from `start` (the
    current folder) upwards. `say` takes the complaints; by default they go to the logger `mcp_envelope`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        start: Path | None = None,
        *,
        interval: float = 1.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._start = _folder(start)
        self._environment = Environment(environ)
        self._interval = interval
        self._say_to = say or _log
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._of_files: set[str] = set()
        self._said_lock = threading.Lock()
        self._response = response_config(self._start)
        self._due = 0.0
        config = self._environment.read(self._environment.snapshot()).config
        self._file = settings_file(path or config, self._start)
        self._state = _State(Document(), Document(), config)
        with self._lock:
            self._look(self._state.config)
        self._say(self.strangers())

    def policy(self, tool: str | None = None, arguments: Mapping[str, Any] | None = None) -> Policy:
        """The policy for a call: of which tool, and with which arguments."""
        if time.monotonic() >= self._due and self._lock.acquire(blocking=False):
            try:
                self._look(self._state.config)
            finally:
                self._lock.release()
        snapshot = self._environment.snapshot()
        policy = self._state.policies.get((tool, snapshot))
        if policy is None:
            policy = self._compose(tool, snapshot)
        if arguments is not None and BUDGET_ARGUMENT in arguments:
            return self._with_budget(policy, arguments[BUDGET_ARGUMENT])
        return policy

    def _with_budget(self, policy: Policy, requested: object) -> Policy:
        """Calls ask for the same few numbers over and over. Only true whole numbers are kept: 1 is also True."""
        if type(requested) is not int:
            return policy.with_budget(requested)
        asked = self._state.asked
        key = id(policy), requested
        kept = asked.get(key)
        if kept is None or kept[0] is not policy:
            if len(asked) >= _KEPT:
                asked.clear()
            kept = asked[key] = policy, policy.with_budget(requested)
        return kept[1]

    def may_place(self, policy: Policy) -> bool:
        """Whether the file may say where results are kept: only one that somebody named, or the environment."""
        from_environment = policy.sources.get("vault", "").startswith(("environment", "MCP_ENVELOPE_"))
        return from_environment or bool(self._path or self._state.config)

    @property
    def file(self) -> str | None:
        """The file that is in force, as people call it."""
        return self._file.name

    def problems(self, dialect: str = "native") -> tuple[str, ...]:
        """What is wrong with the files, those that a dialect brings along included."""
        found = [self._file.problem, *self._state.file.problems]
        if dialect == "scalpel":
            found += [self._response.problem, *self._state.response.problems]
        return tuple(problem for problem in found if problem)

    def strangers(self) -> tuple[str, ...]:
        """What is wrong with the names of variables."""
        return self._environment.strangers()

    def _look(self, config: str | None) -> None:
        """Look at the files. The lock is held."""
        renamed = config != self._state.config
        if renamed:
            self._file = settings_file(self._path or config, self._start)
        changed = [self._file.look(), self._response.look()]
        if any(changed) or renamed:
            spoken = {policy.dialect for policy in list(self._state.policies.values())}
            file = self._file.document
            self._state = _State(file, _with_known_profiles(self._response.document, file), config)
            with self._said_lock:  # what was mended may be said again
                self._said -= self._of_files - set(self.problems("scalpel"))
            news, own_news = self._file.take_news(), self._response.take_news()
            # Of a dialect's own file only those hear who speak the dialect.
            for each in news + own_news if "scalpel" in spoken else news:
                self._say_to(each)
            self._say(self.problems())
            self._of_files = set(self.problems("scalpel"))
        self._due = time.monotonic() + self._interval

    def _compose(self, tool: str | None, snapshot: Snapshot) -> Policy:
        read = self._environment.read(snapshot)
        if read.config != self._state.config:
            with self._lock:
                self._look(read.config)
        state = self._state
        policy = compose(tool, Sources(state.file, state.response, read.layer, read.own))
        problems = (*read.problems, *read.own_problems.get(policy.dialect, ()), *policy.problems)
        policy = replace(policy, problems=problems)
        self._say(policy.problems)
        if policy.dialect == "scalpel":
            self._say(self.problems("scalpel"))
        if len(state.policies) >= _KEPT:
            state.policies.clear()
        state.policies[tool, snapshot] = policy
        return policy

    def _say(self, problems: Iterable[str]) -> None:
        with self._said_lock:
            fresh = [problem for problem in dict.fromkeys(problems) if problem not in self._said]
            if len(self._said) > _REMEMBERED:
                self._said.clear()
            self._said.update(fresh)
        for problem in fresh:
            self._say_to(problem)


def _with_known_profiles(response: Document, file: Document) -> Document:
    """The dialect's own file may name the profiles of ours, which is why only now can they be checked."""
    layers = [response.values, *response.tools.values()]
    [values, *tools], unknown = without_unknown_profiles(layers, file)
    return Document(
        values=values,
        tools=dict(zip(response.tools, tools, strict=True)),
        problems=(*response.problems, *unknown),
    )


def _folder(start: Path | None) -> Path:
    try:
        return Path(os.path.abspath(start or os.getcwd()))
    except OSError:  # the current folder was removed
        return Path(os.path.abspath(os.sep))


def _log(problem: str) -> None:
    import logging  # only here: most runs have nothing to say

    logging.getLogger("mcp_envelope").warning("%s", problem)

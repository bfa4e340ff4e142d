"""The settings of a running program: `Settings` says which policy applies to a call.

A call that finds nothing changed pays for one look at the clock, one snapshot of the environment and one look
into a dictionary. At most once a second, one thread looks at the files; the others go on with what there is.
A state holds what the files say and the policies made from it, and is replaced as a whole. What is wrong with
a file or a variable is said once, and again only if it was fixed in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ..dialects import Variable, registry
from ..dialects import dialect as dialect_named
from ..spelling import did_you_mean
from .files import WatchedFile, own_file, settings_file
from .kinds import NOTHING, shown
from .layers import FileLayers, Layer, OwnSources, compose, read_layer
from .policy import BUDGET_ARGUMENT, PREFIX, SETTINGS, Given, Policy

CONFIG: Final = PREFIX + "CONFIG"
# Where a dialect came from that the program itself chose.
IN_CODE: Final = "in code"
# How many policies are kept before all are dropped: names of tools come from outside.
_KEPT: Final = 2048
# How many ignored settings a message names.
_LISTED: Final = 20
# How many complaints are remembered as said: variables may change all the time.
_REMEMBERED: Final = 1000

Snapshot = tuple[object, ...]


class Variables(NamedTuple):
    """What a snapshot says, and which file it names."""

    texts: Mapping[str, str]
    layer: Layer
    problems: tuple[str, ...]
    config: str | None


class Environment:
    """The variables that we know. A snapshot is a tuple of their raw values; an empty one counts as not set.

    Variables of a dialect's own join ours when the dialect is first spoken. With `own_only` there are no others.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, own_only: bool = False) -> None:
        self._environ = os.environ if environ is None else environ
        self._get: Callable[[Any], object] = self._environ.get
        self._key: Callable[[str], Any] = str
        # os.environ encodes, decodes and catches an exception at each get: 20 of them take longer than all the
        # rest of a call. Below it lies a plain dictionary, which it keeps up to date.
        raw, encode = getattr(self._environ, "_data", None), getattr(self._environ, "encodekey", None)
        if isinstance(raw, dict) and encode is not None:
            self._get, self._key = raw.get, encode
        ours = [] if own_only else [*(setting.variable for setting in SETTINGS.values()), CONFIG]
        # They only grow, so that an older snapshot has the values of the first ones.
        self._names: tuple[str, ...] = tuple(ours)
        self._keys = tuple(map(self._key, ours))

    def watch(self, variables: Iterable[Variable]) -> bool:
        """Look at these variables too; return whether one of them is new."""
        fresh = [variable.name for variable in variables if variable.name not in self._names]
        self._names += tuple(fresh)
        self._keys += tuple(map(self._key, fresh))
        return bool(fresh)

    def snapshot(self) -> Snapshot:
        return tuple(map(self._get, self._keys))

    def read(self, snapshot: Snapshot) -> Variables:
        raw = zip(self._names, snapshot, strict=False)
        texts = {name: os.fsdecode(each) for name, each in raw if isinstance(each, str | bytes) and each}
        problems: list[str] = []

        def complain(name: str, message: str, *inside: str) -> None:
            problems.append(f"{'.'.join((SETTINGS[name].variable, *inside))}: {message}")

        table = {
            name: setting.kind.parse(texts[setting.variable])
            for name, setting in SETTINGS.items()
            if setting.variable in texts
        }
        layer = read_layer(table, lambda name, value: _given(value, SETTINGS[name].variable), complain)
        return Variables(texts, layer, tuple(problems), texts.get(CONFIG))

    def unknown(self) -> tuple[str, ...]:
        """Return a complaint for each variable with our prefix that names no setting."""
        return tuple(
            f"environment: there is no variable {name}{did_you_mean(name, self._names)}"
            for name in sorted(self._environ)
            if name.startswith(PREFIX) and name not in self._names
        )


def _given(value: object, variable: str) -> Given:
    return Given(value, f"environment {variable}", variable)


def _own_sources(file: FileLayers, variables: Iterable[Variable], texts: Mapping[str, str]) -> OwnSources:
    """Return what a dialect's own file and variables say."""
    layers: dict[bool, dict[str, Given]] = {False: {}, True: {}}
    problems = []
    for variable in variables:
        text = texts.get(variable.name, "").strip()
        try:
            found = variable.read(text) if text else {}
        except ValueError as error:
            problems.append(f"{variable.name}: {shown(text)} {error}; it is ignored")
            continue
        layers[variable.overrides] |= {name: _given(value, variable.name) for name, value in found.items()}
    return OwnSources(file, layers[False], layers[True], tuple(problems))


class _State(NamedTuple):
    """What the files say, and the policies that follow."""

    file: FileLayers
    # By dialect.
    own_files: Mapping[str, FileLayers]
    # A file that may only lower budgets.
    offering: FileLayers
    config: str | None
    policies: dict[tuple[str | None, str | None, Snapshot], Policy]


class Settings:
    """Settings from a file, its profiles and tools, and the environment, kept up to date.

    `path` names the file; otherwise `MCP_ENVELOPE_CONFIG` does, or it is the nearest one from `start` (the
    current folder) upwards. `trust_found` is whether a file that was only found has its full effect, as the
    author of a server wants it. Otherwise it may only lower budgets, until the user accepts it.
    With `own_only`, nothing of this counts but what a dialect brings along: its own variables and file.
    `say` takes the complaints; by default they go to the logger `mcp_envelope`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        start: Path | None = None,
        *,
        trust_found: bool = True,
        own_only: bool = False,
        interval: float = 1.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._path = os.devnull if own_only else path
        self._trust_found = trust_found
        self._start = _folder(start)
        self._environment = Environment(environ, own_only)
        self._interval = interval
        self._say_to = say or _log
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._of_files: set[str] = set()
        self._said_lock = threading.Lock()
        self._own_files: dict[str, WatchedFile] = {}
        self._due = 0.0
        config = self._environment.read(self._environment.snapshot()).config
        self._file = settings_file(self._path or config, self._start)
        self._state = _State(FileLayers(), NOTHING, FileLayers(), config, {})
        with self._lock:
            self._look(self._state.config)
        if not own_only:
            self._say(self.unknown_variables())

    def policy(
        self,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        dialect: str | None = None,
    ) -> Policy:
        """Return the policy for a call: of which tool, with which arguments, and in a dialect chosen in code."""
        if time.monotonic() >= self._due and self._lock.acquire(blocking=False):
            try:
                self._look(self._state.config)
            finally:
                self._lock.release()
        snapshot = self._environment.snapshot()
        policy = self._state.policies.get((tool, dialect, snapshot))
        if policy is None:
            policy = self._compose(tool, dialect, snapshot)
        if arguments is None or BUDGET_ARGUMENT not in arguments:
            return policy
        return policy.with_budget(arguments[BUDGET_ARGUMENT])

    def may_place(self, policy: Policy) -> bool:
        """Whether the file may say where results are kept: only one that somebody vouches for."""
        from_environment = policy.sources.get("vault", "").startswith(("environment", PREFIX))
        return from_environment or self._file.is_accepted

    @property
    def file(self) -> str | None:
        """The file that is in force, as people call it."""
        return self._file.name

    def problems(self, dialect: str = "native") -> tuple[str, ...]:
        """Return what is wrong with the files, including one that the dialect brings along."""
        found = [self._file.problem, *self._state.file.problems]
        if (own := self._own_files.get(dialect)) is not None:
            found += [own.problem, *self._state.own_files[dialect].problems]
        return tuple(problem for problem in found if problem)

    def ignored(self) -> tuple[str, ...]:
        """Return what is ignored because nobody vouches for the file, and how to accept it; or nothing."""
        if self._trust_found or self._file.is_accepted:
            return ()
        names = self._file.layers.beyond_budgets()
        if not names:
            return ()
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return (f"{self._file.name}: ignored: {', '.join(names[:_LISTED])}{more}{self._advice()}",)

    def lowered(self, policy: Policy) -> Policy:
        """Return the policy with the budgets of a file that may only lower them. Complaints become problems."""
        policy, wrong = policy.lowered()
        if not wrong:
            return policy
        problems = tuple(f"{problem}{self._advice()}" for problem in wrong)
        with self._said_lock:  # another version of the file may be told the same
            self._of_files |= set(problems)
        self._say(problems)
        return msgspec.structs.replace(policy, problems=(*policy.problems, *problems))

    def _settled_dialect(self, given: Given, problems: list[str]) -> Given | None:
        """Return a dialect that the file chose, its path taken from there; None if the file may not choose it."""
        if registry.is_code(given.value) and not self._file.is_accepted:
            problems.append(
                f"{given.place}: dialect = {shown(given.value)} is ignored: a file that was found, not named, may "
                f"not run code. To accept it: {self._accept()}"
            )
            return None
        return given._replace(value=registry.located(given.value, os.path.dirname(self._file.path)))

    def _accept(self) -> str:
        import shlex

        return f"mcp-envelope trust {shlex.quote(self._file.path)}"

    def _advice(self) -> str:
        why = "a file that was found, not named, may only lower budgets"
        return f"; {why}. To accept it: {self._accept()}"

    def unknown_variables(self) -> tuple[str, ...]:
        """Return what is wrong with the names of variables."""
        return self._environment.unknown()

    def _look(self, config: str | None) -> None:
        """Look at the files. The lock is held."""
        renamed = config != self._state.config
        if renamed:
            self._file = settings_file(self._path or config, self._start)
        changed = [file.look() for file in (self._file, *self._own_files.values())]
        if any(changed) or renamed or self._own_files.keys() != self._state.own_files.keys():
            file, offering = self._file.layers.with_dialects(self._settled_dialect), FileLayers()
            if not (self._trust_found or self._file.is_accepted):
                file, offering = FileLayers(problems=file.problems), file
            # A dialect's file may name the profiles of ours, which is why only now can they be checked.
            own_files = {
                name: own.layers.with_known_profiles(file.profiles) for name, own in self._own_files.items()
            }
            self._state = _State(file, own_files, offering, config, {})
            wrong = {problem for name in ("", *own_files) for problem in self.problems(name)}
            with self._said_lock:  # what was fixed may be said again
                self._said -= self._of_files - wrong
            self._of_files = wrong
            for watched in (self._file, *self._own_files.values()):
                for each in watched.take_news():
                    self._say_to(each)
            for each in self.ignored():
                self._say_to(each)
            self._say(self.problems())
        self._due = time.monotonic() + self._interval

    def _compose(self, tool: str | None, dialect: str | None, snapshot: Snapshot) -> Policy:
        read = self._environment.read(snapshot)
        if read.config != self._state.config:
            with self._lock:
                self._look(read.config)
        # What the program chose is its author's mistake if it is wrong, and raises.
        named = None if dialect is None else dialect_named(dialect).name
        chosen = NOTHING if named is None else {"dialect": Given(named, IN_CODE, IN_CODE)}

        def own_sources(name: str) -> OwnSources:
            nonlocal snapshot, read
            spoken = dialect_named(name)
            if not spoken.has_sources:
                return OwnSources()
            with self._lock:
                if self._environment.watch(spoken.variables):
                    snapshot = self._environment.snapshot()
                    read = self._environment.read(snapshot)
                if spoken.file is not None and name not in self._own_files:
                    # Only those who speak the dialect hear of its file.
                    self._own_files[name] = own_file(spoken.file, self._start)
                    self._look(self._state.config)
            file = self._state.own_files.get(name, FileLayers())
            return _own_sources(file, spoken.variables, read.texts)

        policy = compose(tool, self._state.file, read.layer, own_sources, chosen)
        state = self._state
        problems = (*read.problems, *policy.problems)
        policy = msgspec.structs.replace(policy, problems=problems, offers=state.offering.offers(tool))
        self._say((*policy.problems, *self.problems(policy.dialect)))
        if len(state.policies) >= _KEPT:
            state.policies.clear()
        state.policies[tool, dialect, snapshot] = policy
        return policy

    def _say(self, problems: Iterable[str]) -> None:
        with self._said_lock:
            fresh = [problem for problem in dict.fromkeys(problems) if problem not in self._said]
            if len(self._said) > _REMEMBERED:
                self._said.clear()
            self._said.update(fresh)
        for problem in fresh:
            self._say_to(problem)


def _folder(start: Path | None) -> Path:
    try:
        return Path(os.path.abspath(start or os.getcwd()))
    except OSError:  # the current folder was removed
        return Path(os.path.abspath(os.sep))


def _log(problem: str) -> None:
    import logging  # only here: most runs have nothing to say

    logging.getLogger("mcp_envelope").warning("%s", problem)

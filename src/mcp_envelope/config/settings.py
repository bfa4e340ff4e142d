"""The settings of a running program: `Settings` says which policy applies to a call.

Sources are layers, folded from the weakest to the strongest: a value replaces a weaker one, a table adds its
entries to a weaker one, and of two rivals the stronger layer's takes the other away. A call that finds nothing
changed pays for one look at the clock, one snapshot of the environment and one look into a dictionary. At most
once a second, one thread looks at the files; the others go on with what there is. What is wrong with a file or a
variable is said once, and again only if it was fixed in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from ..dialects import Variable, registry
from ..dialects import dialect as dialect_named
from ..spelling import did_you_mean
from .files import TOP, Contents, Layer, WatchedFile, own_file, settings_file, without_rival
from .policy import (
    BUDGET_ARGUMENT,
    BUDGETS,
    BUILT_IN,
    PROFILES,
    RIVALS,
    SETTINGS,
    Given,
    Policy,
)
from .values import NOTHING, PREFIX, shown

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
        self._said: set[str] = set()
        self._of_files: set[str] = set()
        # For everything but a call that finds nothing changed.
        self._lock = threading.RLock()
        self._due = 0.0
        self._policies: dict[tuple[str | None, str | None, Snapshot], Policy] = {}
        self._config = self._environment.texts(self._environment.snapshot()).get(CONFIG)
        # By dialect; ours has no name.
        self._files = {"": settings_file(self._path or self._config, self._start)}
        self._contents: dict[str, Contents] = {}
        # What a file says that may only lower budgets.
        self._offering = Contents()
        with self._lock:
            self._look(is_new=True)
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
                self._look()
            finally:
                self._lock.release()
        snapshot = self._environment.snapshot()
        policy = self._policies.get((tool, dialect, snapshot))
        if policy is None:
            with self._lock:
                policy = self._compose(tool, dialect, snapshot)
        if arguments is None or BUDGET_ARGUMENT not in arguments:
            return policy
        return policy.with_budget(arguments[BUDGET_ARGUMENT])

    @property
    def file(self) -> str | None:
        """The file that is in force, as people call it."""
        return self._file.name

    @property
    def _file(self) -> WatchedFile:
        return self._files[""]

    def may_place(self, policy: Policy) -> bool:
        """Whether the file may say where results are kept: only one that somebody vouches for."""
        return policy.sources.get("vault", "").startswith("environment") or self._file.is_accepted

    def report(self, tool: str | None = None) -> tuple[Policy, tuple[str, ...], tuple[str, ...]]:
        """Return the policy for a tool of the proxy's, what is wrong with the files, and what else to know."""
        policy = self.lowered(self.policy(tool))
        notes = (*policy.problems, *self.ignored(), *self.unknown_variables())
        return policy, self.problems(policy.dialect), notes

    def problems(self, dialect: str = "native") -> tuple[str, ...]:
        """Return what is wrong with the files, including one that the dialect brings along."""
        found: list[str] = []
        for name in ("", dialect):
            if name in self._files:
                found += [self._files[name].problem or "", *self._contents[name].problems]
        return tuple(filter(None, found))

    def unknown_variables(self) -> tuple[str, ...]:
        """Return what is wrong with the names of variables."""
        return self._environment.unknown()

    # -- a file that was only found -----------------------------------------------------------------------------

    def ignored(self) -> tuple[str, ...]:
        """Return what is ignored because nobody vouches for the file, and how to accept it; or nothing."""
        names = [
            ".".join(filter(None, (kind and f"{kind}s", table, name)))
            for (kind, table), layer in self._offering.layers.items()
            for name in (layer if kind != "profile" else ("",))
            if name not in BUDGETS
        ]
        if not names:
            return ()
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return (f"{self._file.name}: ignored: {', '.join(names[:_LISTED])}{more}{self._advice()}",)

    def lowered(self, policy: Policy) -> Policy:
        """Return the policy with the offered budgets that are lower. Complaints about others become problems.

        An offer ranks below everything that somebody chose: it counts only where nothing is set.
        """
        wrong = []
        for name, given in policy.offers:
            names = {name, RIVALS.get(name, name)}
            if any(policy.sources.get(each, BUILT_IN) != BUILT_IN for each in names):
                continue
            offered = replace(policy, **{**dict.fromkeys(names), name: given.value})
            before, settled = policy.allowance, offered.allowance
            if name == "max_tokens":
                is_lower, limit = settled.ceiling <= before.ceiling, f"{before.ceiling} tokens"
            else:
                lowest, limit = settled.budget, f"{before.limit} {before.unit}"
                is_lower = not before.budget or (lowest is not None and lowest.is_within(before.budget))
            if is_lower:
                sources = MappingProxyType({**policy.sources, name: given.source})
                policy = replace(offered, sources=sources)
            else:
                why = f"is ignored: it may not exceed {limit}{self._advice()}"
                wrong.append(f"{given.place}: {name} = {given.value} {why}")
        if not wrong:
            return policy
        with self._lock:
            self._of_files.update(wrong)  # another version of the file may be told the same
            self._say(wrong)
        return replace(policy, problems=(*policy.problems, *wrong))

    def _advice(self) -> str:
        return f"; a file that was merely found, not named, may only lower budgets. {self._how_to_accept()}"

    def _how_to_accept(self) -> str:
        import shlex

        return f"To accept it: mcp-envelope trust {shlex.quote(self._file.path)}"

    def _runs_code(self, name: str, given: Given) -> str:
        if name != "dialect" or not registry.is_code(given.value):
            return ""
        why = "a file that was merely found, not named, may not run code"
        return f"dialect is ignored: {why}. {self._how_to_accept()}"

    # -- looking, with the lock held ----------------------------------------------------------------------------

    def _look(self, is_new: bool = False) -> None:
        """Look at the files; one of them may not have been looked at before."""
        changed = [file.look() for file in self._files.values()]
        if is_new or any(changed):
            file, self._offering = self._file.contents, Contents()
            if not self._file.is_accepted:
                file = file.without(self._runs_code)
                if not self._trust_found:
                    file, self._offering = Contents(problems=file.problems), file
            # A dialect's file may name the profiles of ours, which is why only now can they be checked.
            own = {name: each.contents.with_known_profiles(file) for name, each in self._files.items()}
            self._contents, self._policies = {**own, "": file}, {}
            wrong = {problem for name in self._files for problem in self.problems(name)}
            self._said -= self._of_files - wrong  # what was fixed may be said again
            self._of_files = wrong
            for watched in self._files.values():
                while watched.news:
                    self._say_to(watched.news.pop(0))
            for each in self.ignored():
                self._say_to(each)
            self._say(self.problems())
        self._due = time.monotonic() + self._interval

    def _say(self, problems: Iterable[str]) -> None:
        for problem in problems:
            if problem not in self._said:
                if len(self._said) > _REMEMBERED:
                    self._said.clear()
                self._said.add(problem)
                self._say_to(problem)

    # -- composing, with the lock held --------------------------------------------------------------------------

    def _compose(self, tool: str | None, dialect: str | None, snapshot: Snapshot) -> Policy:
        # What the program chose is its author's mistake if it is wrong, and raises.
        chosen = {} if dialect is None else {"dialect": Given(dialect_named(dialect).name, IN_CODE, IN_CODE)}
        texts = self._environment.texts(snapshot)
        if texts.get(CONFIG) != self._config:
            self._config = texts.get(CONFIG)
            self._files[""] = settings_file(self._path or self._config, self._start)
            self._look(is_new=True)
        file = self._contents[""]
        environment = _environment(texts).with_known_profiles(file)
        problems, tools = [*environment.problems], file.for_tool(tool)
        fold = _Fold(file, [file.layer()], [*tools, environment.layer(), chosen], problems)
        spoken = dialect_named(fold.values["dialect"])
        if spoken.has_sources:
            # Only those who speak the dialect hear of its variables and its file.
            is_new = self._environment.watch(variable.name for variable in spoken.variables)
            if spoken.file is not None and spoken.name not in self._files:
                self._files[spoken.name] = own_file(spoken.file, self._start)
                self._look(is_new := True)
            if is_new:
                return self._compose(tool, dialect, self._environment.snapshot())
            own = self._contents.get(spoken.name, Contents())
            weak, strong = _own_variables(spoken.variables, texts, problems)
            # Whatever its sources say, the dialect stays.
            stays = {"dialect": Given(spoken.name, fold.sources["dialect"], "")}
            above = [*own.for_tool(tool), *tools, weak, environment.layer(), strong, stays]
            fold = _Fold(file, [own.layer(), file.layer()], above, problems)
        policy = replace(fold.policy(problems), offers=self._offers(tool))
        self._say((*policy.problems, *self.problems(policy.dialect)))
        if len(self._policies) >= _KEPT:
            self._policies.clear()
        self._policies[tool, dialect, snapshot] = policy
        return policy

    def _offers(self, tool: str | None) -> tuple[tuple[str, Given], ...]:
        layers = [self._offering.layer(), *self._offering.for_tool(tool)]
        return tuple((name, layer[name]) for layer in reversed(layers) for name in BUDGETS if name in layer)


class _Fold:
    """What layers add up to, with those of the profile between the ones below and above it."""

    def __init__(
        self, file: Contents, below: Sequence[Layer], above: Sequence[Layer], problems: list[str]
    ) -> None:
        chosen = [layer["profile"].value for layer in (*below, *above) if "profile" in layer]
        chain = chosen[-1:] or [PROFILES[0]]
        while chain[0] not in PROFILES:
            base = file.layer("profile", chain[0]).get("base")
            if base is not None and base.value in chain:
                problems.append(f"{base.place}: {base.value} is based on itself; {PROFILES[0]} is used")
                base = None
            chain.insert(0, PROFILES[0] if base is None else base.value)
        self.detail = chain[0]
        self.values: dict[str, Any] = {name: setting.default for name, setting in SETTINGS.items()}
        self.sources = dict.fromkeys(SETTINGS, BUILT_IN)
        for layer in (*below, *(file.layer("profile", name) for name in chain), *above):
            for name, given in layer.items():
                self._add(name, given)
        try:
            self.values["dialect"] = dialect_named(self.values["dialect"]).name
        except ValueError as error:
            problems.append(f"{self.sources['dialect']}: {error}; native is used")
            self.values["dialect"], self.sources["dialect"] = "native", BUILT_IN

    def _add(self, name: str, given: Given) -> None:
        if name == "base":
            return
        value, source, _ = given
        if rival := RIVALS.get(name):
            self.values[rival], self.sources[rival] = None, BUILT_IN
        if isinstance(SETTINGS[name].default, Mapping):
            entries = {**self.values[name], **value}.items()
            value = MappingProxyType({key: entry for key, entry in entries if entry})  # empty: taken away
            source = source if self.sources[name] == BUILT_IN else f"{self.sources[name]}, {source}"
        self.values[name], self.sources[name] = value, source

    def policy(self, problems: list[str]) -> Policy:
        """Return the policy, its numbers in the dialect's range."""
        values, sources = self.values, self.sources
        settled = Policy(**values, sources=sources).allowance
        problems += [f"{sources[name]}: {problem}" for name, problem in settled.problems]
        if values[settled.unit] is not None:
            values[settled.unit] = settled.limit
        if values["max_tokens"] is not None:
            values["max_tokens"] = settled.ceiling
        if values["meter"] == "bytes" != settled.meter:
            values["meter"], sources["meter"] = None, BUILT_IN
        unique = tuple(dict.fromkeys(problems))
        return Policy(**values, detail=self.detail, sources=MappingProxyType(sources), problems=unique)


# -- the environment ----------------------------------------------------------------------------------------


class Environment:
    """The variables that we know. A snapshot is a tuple of their raw values, or empty if none is there.

    Variables of a dialect's own join ours when the dialect is first spoken. With `own_only` there are no others.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, own_only: bool = False) -> None:
        self._environ = os.environ if environ is None else environ
        self._raw: Mapping[Any, object] = self._environ
        self._key: Callable[[str], Any] = str
        # os.environ encodes, decodes and catches an exception at each get: 20 of them take longer than all the
        # rest of a call. Below it lies a plain dictionary, which it keeps up to date.
        raw, encode = getattr(self._environ, "_data", None), getattr(self._environ, "encodekey", None)
        if isinstance(raw, dict) and encode is not None:
            self._raw, self._key = raw, encode
        # They only grow, so that an older snapshot has the values of the first ones.
        self._names: tuple[str, ...] = ()
        self._keys: tuple[Any, ...] = ()
        self.watch([] if own_only else [*(setting.variable for setting in SETTINGS.values()), CONFIG])

    def watch(self, names: Iterable[str]) -> bool:
        """Look at these variables too; return whether one of them is new."""
        fresh = [name for name in names if name not in self._names]
        self._names += tuple(fresh)
        self._keys += tuple(map(self._key, fresh))
        return bool(fresh)

    def snapshot(self) -> Snapshot:
        if self._raw.keys().isdisjoint(self._keys):
            return ()
        return tuple(map(self._raw.get, self._keys))

    def texts(self, snapshot: Snapshot) -> dict[str, str]:
        """Return what the variables say that are set. An empty one counts as not set."""
        raw = zip(self._names, snapshot, strict=False)
        return {name: os.fsdecode(each) for name, each in raw if isinstance(each, str | bytes) and each}

    def unknown(self) -> tuple[str, ...]:
        """Return a complaint for each variable with our prefix that names no setting."""
        return tuple(
            f"environment: there is no variable {name}{did_you_mean(name, self._names)}"
            for name in sorted(self._environ)
            if name.startswith(PREFIX) and name not in self._names
        )


def _environment(texts: Mapping[str, str]) -> Contents:
    layer: dict[str, Given] = {}
    problems: list[str] = []

    def report(variable: str, message: str, *path: str) -> None:
        problems.append(variable + message)

    for name, setting in SETTINGS.items():
        if (text := texts.get(variable := setting.variable)) is not None:
            value = setting.read(setting.parse(text), partial(report, variable))
            if value is not UNSET:
                layer[name] = Given(value, f"environment {variable}", variable)
    without_rival(layer, problems)
    return Contents({TOP: layer} if layer else NOTHING, tuple(problems))


def _own_variables(
    variables: Iterable[Variable], texts: Mapping[str, str], problems: list[str]
) -> tuple[Layer, Layer]:
    """Return what a dialect's own variables say: below ours, and above everything."""
    layers: tuple[dict[str, Given], dict[str, Given]] = {}, {}
    for variable in variables:
        text = texts.get(variable.name, "").strip()
        try:
            found = variable.read(text) if text else {}
        except ValueError as error:
            problems.append(f"{variable.name}: {shown(text)} {error}; it is ignored")
            continue
        source = f"environment {variable.name}"
        layers[variable.overrides].update({name: Given(each, source, source) for name, each in found.items()})
    return layers


def _folder(start: Path | None) -> Path:
    try:
        return Path(os.path.abspath(start or os.getcwd()))
    except OSError:  # the current folder was removed
        return Path(os.path.abspath(os.sep))


def _log(problem: str) -> None:
    import logging  # only here: most runs have nothing to say

    logging.getLogger("mcp_envelope").warning("%s", problem)

"""Layers of settings, and the policy that they add up to.

Strategy: a layer maps a setting to a value and to where it stands. Layers are folded from the weakest to
the strongest: a value replaces a weaker one, a table adds its entries to a weaker one, and of two rivals
the stronger layer's takes the other away. Which profile applies is known before the fold, for the profile
is a layer itself. Which dialect applies is known after it; since a dialect brings sources of its own, those
dialects fold twice, and the dialect stays what it was the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .. import meters
from .allowance import Allowance
from .kinds import NOTHING
from .names import nearest, shown
from .table import BUILT_IN, PROFILES, SETTINGS, Policy


class Given(NamedTuple):
    """A value, and where it stands: in a word for `sources`, and in full for a complaint."""

    value: Any
    source: str
    place: str


Layer = Mapping[str, Given]
EMPTY: Final[Layer] = NOTHING
_ORDER: Final = {name: position for position, name in enumerate(SETTINGS)}


class Profile(NamedTuple):
    base: str | None
    layer: Layer


class Document(NamedTuple):
    """What a file says."""

    values: Layer = EMPTY
    profiles: Mapping[str, Profile] = NOTHING
    tools: Mapping[str, Layer] = NOTHING
    problems: tuple[str, ...] = ()

    def for_tool(self, tool: str | None) -> list[Layer]:
        """The tables that apply to a tool, weakest first: patterns, the closer ones later, then its name."""
        if tool is None or not self.tools:
            return []
        patterns = [name for name in self.tools if name != tool and fnmatchcase(tool, name)]
        patterns.sort(key=lambda name: sum(char not in "*?[]" for char in name))
        return [self.tools[name] for name in (*patterns, tool) if name in self.tools]


class Sources(NamedTuple):
    """Everything that a policy is made of, besides the name of the tool."""

    file: Document
    response: Document  # the dialect scalpel's own file
    environment: Layer
    own: Mapping[str, tuple[Layer, Layer]]  # dialect -> its own variables: below and above `environment`


def compose(tool: str | None, sources: Sources) -> Policy:
    """The policy for a tool."""
    problems: list[str] = []
    file, environment = sources.file, _without_unknown_profile(sources, problems)
    layers = [file.values, *file.for_tool(tool), environment]
    fold = _fold(file, 1, layers)
    dialect = fold.values["dialect"]
    below, above = sources.own.get(dialect, (EMPTY, EMPTY))
    response = sources.response if dialect == "scalpel" else Document()
    if below or above or response != Document():
        layers = [response.values, file.values, *response.for_tool(tool), *file.for_tool(tool)]
        again = _fold(file, 2, [*layers, below, environment, above])
        if again.values["dialect"] != dialect:
            problems.append(
                f"the profile {again.values['profile']} sets the dialect {again.values['dialect']}, but was "
                f"chosen by a source of the dialect {dialect} alone; the dialect stays {dialect}"
            )
            again.values["dialect"], again.sources["dialect"] = dialect, fold.sources["dialect"]
        fold = again
    return _settled(fold, problems)


class _Fold(NamedTuple):
    values: dict[str, Any]
    sources: dict[str, str]
    detail: str


def _fold(file: Document, general: int, layers: Sequence[Layer]) -> _Fold:
    """`general` layers come before the profile's, the others after it."""
    profile = next((layer["profile"].value for layer in reversed(layers) if "profile" in layer), PROFILES[0])
    chain = _chain(profile, file.profiles)
    values = {name: setting.default for name, setting in SETTINGS.items()}
    sources = dict.fromkeys(SETTINGS, BUILT_IN)
    bases = [file.profiles[name].layer for name in chain if name in file.profiles]
    for layer in [*layers[:general], *bases, *layers[general:]]:
        for name, given in layer.items():
            setting = SETTINGS[name]
            if setting.rival:
                values[setting.rival], sources[setting.rival] = SETTINGS[setting.rival].default, BUILT_IN
            if setting.kind.merges:
                values[name] = _merged(values[name], given.value)
                told = sources[name]
                sources[name] = given.source if told == BUILT_IN else f"{told}, {given.source}"
            else:
                values[name], sources[name] = given.value, given.source
    return _Fold(values, sources, chain[0])


def _chain(profile: str, profiles: Mapping[str, Profile]) -> list[str]:
    """The profile and what it stands on, the built-in one first."""
    chain = [profile]
    while profile not in PROFILES:
        profile = profiles[profile].base or PROFILES[0]
        chain.insert(0, profile)
    return chain


def _merged(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> Mapping[str, Any]:
    """An empty entry takes one away."""
    return MappingProxyType({name: entry for name, entry in {**weaker, **stronger}.items() if entry})


def _settled(fold: _Fold, problems: list[str]) -> Policy:
    """The policy, its numbers in the dialect's range and its meter one that is there."""
    values, sources = fold.values, fold.sources
    if values["meter"] is not None:
        try:
            meters.meter(values["meter"])
        except meters.MeterUnavailable as error:
            problems.append(f"{sources['meter']}: {error}; the default meter is used")
            values["meter"], sources["meter"] = None, BUILT_IN
    allowance = Allowance.of(
        values["dialect"], values["tokens"], values["bytes"], values["max_tokens"], values["meter"]
    )
    for name, problem in allowance.problems:
        problems.append(f"{sources[name]}: {problem}")
    for name, unit in (("tokens", "tokens"), ("bytes", "bytes")):
        if values[name] is not None and allowance.unit == unit:
            values[name] = allowance.limit
    if values["max_tokens"] is not None:
        values["max_tokens"] = allowance.ceiling
    if values["meter"] == "bytes" != allowance.meter:
        values["meter"], sources["meter"] = None, BUILT_IN
    return Policy(
        **values,
        detail=fold.detail,
        sources=MappingProxyType(sources),
        problems=tuple(dict.fromkeys(problems)),
    )


def _without_unknown_profile(sources: Sources, problems: list[str]) -> Layer:
    [environment], said = without_unknown_profiles([sources.environment], sources.file)
    problems += said
    return environment


def without_rivals(layer: Mapping[str, Given]) -> tuple[dict[str, Given], list[tuple[str, str]]]:
    """The layer with one of each two rivals, the first in the table, and the pairs that were both there."""
    both = [
        (name, rival)
        for name in layer
        if (rival := SETTINGS[name].rival) and rival in layer and _ORDER[name] < _ORDER[rival]
    ]
    gone = {rival for _, rival in both}
    return {name: given for name, given in layer.items() if name not in gone}, both


def without_unknown_profiles(layers: Iterable[Layer], file: Document) -> tuple[list[Layer], list[str]]:
    """The layers as if nobody had named a profile that does not exist, and a complaint for each that did."""
    known = (*PROFILES, *file.profiles)
    kept: list[Layer] = []
    problems: list[str] = []
    for layer in layers:
        given = layer.get("profile")
        if given is not None and given.value not in known:
            problems.append(
                f"{given.place}: there is no profile {shown(given.value)}{nearest(given.value, known)}"
            )
            layer = {name: each for name, each in layer.items() if name != "profile"}
        kept.append(layer)
    return kept, problems

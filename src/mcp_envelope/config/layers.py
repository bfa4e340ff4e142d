"""Layers of settings, and the policy that they add up to.

A layer maps a setting to a value and to where it stands. Layers are folded from the weakest to the strongest:
a value replaces a weaker one, a table adds its entries to a weaker one, and of two rivals the stronger
layer's takes the other away. Which profile applies is known before the fold, since the profile is a layer
itself. Which dialect applies is known after it; a dialect with sources of its own is folded twice, and stays
what it was the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import UNSET

from .. import dialects
from ..budget import MeterUnavailable, meter_named
from ..spelling import did_you_mean
from .kinds import NOTHING, shown
from .policy import (
    BUDGETS,
    BUILT_IN,
    PROFILES,
    RIVALS,
    SETTINGS,
    Given,
    Offer,
    Policy,
    allowance,
    is_own_limit,
)

Layer = Mapping[str, Given]


class FileLayers(NamedTuple):
    """What a file says. Under `base`, a profile's layer may name the profile that it is based on."""

    values: Layer = NOTHING
    profiles: Mapping[str, Layer] = NOTHING
    tools: Mapping[str, Layer] = NOTHING
    problems: tuple[str, ...] = ()

    def for_tool(self, tool: str | None) -> list[Layer]:
        """Return the tables for a tool, weakest first: patterns, the closer ones later, then its name."""
        if tool is None or not self.tools:
            return []
        from fnmatch import fnmatchcase

        patterns = [name for name in self.tools if name != tool and fnmatchcase(tool, name)]
        patterns.sort(key=lambda name: sum(char not in "*?[]" for char in name))
        return [self.tools[name] for name in (*patterns, tool) if name in self.tools]

    def offers(self, tool: str | None) -> tuple[Offer, ...]:
        """Return the budgets for a tool, strongest first."""
        layers = [self.values, *self.for_tool(tool)]
        return tuple((name, layer[name]) for layer in reversed(layers) for name in BUDGETS if name in layer)

    def beyond_budgets(self) -> list[str]:
        """Return the names of all that is set besides budgets."""
        tables = {"": self.values, **{f"tools.{name}.": layer for name, layer in self.tools.items()}}
        names = [prefix + name for prefix, layer in tables.items() for name in layer if name not in BUDGETS]
        return [*names, *(f"profiles.{name}" for name in self.profiles)]

    def with_dialects(self, settled: Callable[[Given, list[str]], Given | None]) -> FileLayers:
        """Return this with each choice of a dialect settled: changed, or taken away with a complaint."""
        problems = [*self.problems]

        def changed(layer: Layer) -> Layer:
            if (given := layer.get("dialect")) is None:
                return layer
            rest = {name: each for name, each in layer.items() if name != "dialect"}
            found = settled(given, problems)
            return rest if found is None else {**rest, "dialect": found}

        values = changed(self.values)
        profiles = {name: changed(layer) for name, layer in self.profiles.items()}
        tools = {name: changed(layer) for name, layer in self.tools.items()}
        return FileLayers(values, profiles, tools, tuple(problems))

    def with_known_profiles(self, profiles: Iterable[str]) -> FileLayers:
        """Return this without choices of a profile that does not exist, and with complaints about them."""
        problems = [*self.problems]
        values = known_profile(self.values, profiles, problems)
        tools = {name: known_profile(layer, profiles, problems) for name, layer in self.tools.items()}
        return self._replace(values=values, tools=tools, problems=tuple(problems))


class OwnSources(NamedTuple):
    """What only one dialect listens to: a file beside ours, and variables below or above ours."""

    file: FileLayers = FileLayers()
    weak: Layer = NOTHING
    strong: Layer = NOTHING
    problems: tuple[str, ...] = ()


def known_profile(layer: Layer, profiles: Iterable[str], problems: list[str], key: str = "profile") -> Layer:
    """Return the layer as if nobody had named a profile that does not exist."""
    given, known = layer.get(key), (*PROFILES, *profiles)
    if given is None or given.value in known:
        return layer
    problems.append(
        f"{given.place}: there is no profile {shown(given.value)}{did_you_mean(given.value, known)}"
    )
    return {name: each for name, each in layer.items() if name != key}


def read_layer(
    table: Mapping[str, object], given: Callable[[str, Any], Given], complain: Callable[..., None]
) -> Layer:
    """Return the values of a table that can be used. `complain(setting, message, *path)` hears of the others."""
    layer: dict[str, Given] = {}
    for name, value in table.items():
        read = SETTINGS["profile" if name == "base" else name].kind.read(value, partial(complain, name))
        if read is not UNSET:
            layer[name] = given(name, read)
    if "tokens" in layer and "bytes" in layer:
        del layer["bytes"]
        complain("bytes", "not used, because tokens is set too")
    return layer


def compose(
    tool: str | None,
    file: FileLayers,
    environment: Layer,
    own_sources: Callable[[str], OwnSources],
    chosen: Layer = NOTHING,
) -> Policy:
    """Return the policy for a tool. `chosen` is what the program itself decided; `own_sources` knows dialects."""
    problems: list[str] = []
    environment = known_profile(environment, file.profiles, problems)
    fold = _fold(file, [file.values], [*file.for_tool(tool), environment, chosen])
    dialect = _spoken(fold, problems)
    own = own_sources(dialect)
    if own != OwnSources():
        tools = [*own.file.for_tool(tool), *file.for_tool(tool)]
        above = [*tools, own.weak, environment, chosen, own.strong]
        again = _fold(file, [own.file.values, file.values], above)
        if _spoken(again, problems) != dialect:
            problems.append(
                f"the profile {again.values['profile']} sets the dialect {again.values['dialect']}, but was "
                f"chosen by a source of the dialect {dialect} alone; the dialect stays {dialect}"
            )
            again.values["dialect"], again.sources["dialect"] = dialect, fold.sources["dialect"]
        fold = again
    return _settled(fold, [*own.problems, *problems])


def _spoken(fold: _Fold, problems: list[str]) -> str:
    """Return the name of the dialect, which is loaded if need be."""
    try:
        fold.values["dialect"] = dialects.dialect(fold.values["dialect"]).name
    except ValueError as error:
        problems.append(f"{fold.sources['dialect']}: {error}; native is used")
        fold.values["dialect"], fold.sources["dialect"] = "native", BUILT_IN
    return str(fold.values["dialect"])


class _Fold(NamedTuple):
    values: dict[str, Any]
    sources: dict[str, str]
    detail: str


def _fold(file: FileLayers, below: Sequence[Layer], above: Sequence[Layer]) -> _Fold:
    """Fold the layers, with those of the profile between the ones below and above it."""
    chosen = [layer["profile"].value for layer in (*below, *above) if "profile" in layer]
    chain = [chosen[-1] if chosen else PROFILES[0]]
    while chain[0] not in PROFILES:
        base = file.profiles[chain[0]].get("base")
        chain.insert(0, PROFILES[0] if base is None else base.value)
    values = {name: setting.default for name, setting in SETTINGS.items()}
    sources = dict.fromkeys(SETTINGS, BUILT_IN)
    for layer in (*below, *(file.profiles.get(name, NOTHING) for name in chain), *above):
        for name, (value, source, _) in layer.items():
            if name == "base":
                continue
            if rival := RIVALS.get(name):
                values[rival], sources[rival] = None, BUILT_IN
            if isinstance(SETTINGS[name].default, Mapping):
                entries = {**values[name], **value}.items()
                value = MappingProxyType({key: entry for key, entry in entries if entry})  # empty: taken away
                source = source if sources[name] == BUILT_IN else f"{sources[name]}, {source}"
            values[name], sources[name] = value, source
    return _Fold(values, sources, chain[0])


def _settled(fold: _Fold, problems: list[str]) -> Policy:
    """Return the policy, its numbers in the dialect's range and its meter one that is there."""
    values, sources = fold.values, fold.sources
    if values["meter"] is not None:
        try:
            meter_named(values["meter"])
        except MeterUnavailable as error:
            problems.append(f"{sources['meter']}: {error}; the default meter is used")
            values["meter"], sources["meter"] = None, BUILT_IN
    wanted = (values[name] for name in ("dialect", "tokens", "bytes", "max_tokens", "meter"))
    settled = allowance(*wanted, is_own_limit(values["dialect"], sources))
    problems += [f"{sources[name]}: {problem}" for name, problem in settled.problems]
    if values[settled.unit] is not None:
        values[settled.unit] = settled.limit
    if values["max_tokens"] is not None:
        values["max_tokens"] = settled.ceiling
    if values["meter"] == "bytes" != settled.meter:
        values["meter"], sources["meter"] = None, BUILT_IN
    unique = tuple(dict.fromkeys(problems))
    return Policy(**values, detail=fold.detail, sources=MappingProxyType(sources), problems=unique)

"""Compares two configurations: which parts must restart, and which keys differ.

A part must restart if its settings or its address change. Settings that the part can apply while it
runs are left out of the comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from appliance.config.model import MillConfig
from appliance.launch.run import SERVERS
from appliance.mill.parts import BROKER_PREFIX
from appliance.mill.settings import Mill, settings_for
from stream.config.changes import LIVE_KEYS
from stream.config.settings import StreamSection


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences between two configurations, as names of parts, each list in the order of
    starting.

    `in_turn`: the changed parts that restart one after the other, at the same addresses.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    in_turn: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        at_once = tuple(name for name in self.changed if name not in self.in_turn)
        sentences = (
            ("restarts", "restart", at_once),
            ("restarts", "restart one after the other", self.in_turn),
            ("starts", "start", self.added),
            ("stops", "stop", self.removed),
        )
        return "; ".join(
            f"{', '.join(names)} {one if len(names) == 1 else many}"
            for one, many, names in sentences
            if names
        )


def differences(started: Mill, wanted: Mill) -> Differences:
    """Return the changes that a mill with the configuration `started` needs. Raises InitError."""
    before = {part.name: part for part in started.parts}
    after = {part.name: part for part in wanted.parts}
    changed = tuple(
        name
        for name, part in after.items()
        if name in before
        and (
            part != before[name]
            or _settings_at_start(started, name) != _settings_at_start(wanted, name)
        )
    )
    return Differences(
        changed=changed,
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        in_turn=tuple(
            name
            for name in changed
            if after[name].takes_turns and after[name].keeps_addresses_of(before[name])
        ),
    )


def _settings_at_start(mill: Mill, name: str) -> dict[str, Any]:
    """Return a part's settings, without those that it applies while it runs."""
    if name in SERVERS:
        # Redis and MySQL have no settings except their port and what other machines reach.
        network = mill.config.network
        is_open = name in network.open
        return {"listen": network.listen, "names": network.names} if is_open else {}
    settings = settings_for(mill, name)
    if name.startswith(BROKER_PREFIX):
        # A running broker finds other brokers in the metadata log, so it need not restart for them.
        # Only a broker that was configured alone must restart to become one of several.
        settings = {**settings, "voters": bool(settings["voters"]), "joins": None}
    if name == "stream":
        live = {StreamSection.model_fields[key].alias or key for key in LIVE_KEYS}
        section = {key: value for key, value in settings["section"].items() if key not in live}
        settings = {**settings, "section": section, "reload": None, "topics": None}
    if name == "collector":
        section = {key: value for key, value in settings["section"].items() if key != "inputs"}
        settings = {**settings, "section": section, "reload": None, "topics": None}
    if name == "monitor":
        left = ("metrics", "inputs", "reload")
        settings = {key: value for key, value in settings.items() if key not in left}
    return settings


def changed_words(started: MillConfig, wanted: MillConfig) -> list[str]:
    """Return one line for each difference: inputs and metrics by name, other keys by path."""
    before, after = started.collector.inputs, wanted.collector.inputs
    words = _changes_in(
        "input",
        {f"{', '.join(one.paths)} → {one.topic}": one for one in before},
        {f"{', '.join(one.paths)} → {one.topic}": one for one in after},
    )
    words += _changes_in(
        "metric",
        {one.name: one for one in started.stream.metrics},
        {one.name: one for one in wanted.stream.metrics},
    )
    named = {("collector", "inputs"), ("stream", "metrics")}
    for section in MillConfig.model_fields:
        one, other = getattr(started, section), getattr(wanted, section)
        if not isinstance(one, BaseModel) or not isinstance(other, BaseModel):
            words += [] if one == other else [f"{section}: changed"]
            continue
        words += [f"{section}.{key}: changed" for key in _keys(one, other, section, named)]
    return words


def _keys(one: BaseModel, other: BaseModel, section: str, named: set[tuple[str, str]]) -> list[str]:
    return [
        field.alias or key
        for key, field in type(one).model_fields.items()
        if (section, key) not in named and getattr(one, key) != getattr(other, key)
    ]


def _changes_in(
    kind: str, before: Mapping[str, BaseModel], after: Mapping[str, BaseModel]
) -> list[str]:
    words = [f"{kind} {name}: added" for name in after if name not in before]
    words += [f"{kind} {name}: gone" for name in before if name not in after]
    for name in before:
        if name in after and before[name] != after[name]:
            keys = _keys(before[name], after[name], "", set())
            words.append(f"{kind} {name}: changed in {', '.join(keys)}")
    return words

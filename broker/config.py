"""One broker's configuration, put together from the tables of settings, and the checks on them.

Ground floor. Pure, and free of pydantic: a broker process must stay small. `topic_keys.LogConfig`
holds what a topic may set for itself, `node_keys.BrokerKeys` what only the node has. What the file
states is `given`; what has been set while the broker runs lies above it, first for all nodes, then
for this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.node_keys import BrokerKeys
from broker.settings import (
    INT_MAX,
    ConfigError,
    Fault,
    Kind,
    Setting,
    Synonym,
    Value,
    WrongValue,
    nearest,
    parse,
    rows,
    text,
)
from broker.topic_keys import CREATE_TIME as CREATE_TIME
from broker.topic_keys import LOG_APPEND_TIME as LOG_APPEND_TIME
from broker.topic_keys import PRODUCERS_CODEC as PRODUCERS_CODEC
from broker.topic_keys import LogConfig as LogConfig

BROKER_LISTENER = "BROKER"
"""Where brokers come in among themselves; clients and the mill's parts come in by the others."""

FAULT_COUNT_MAX = 20
"""So many wrong settings are named; a client may send thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where the broker listens under one listener name, and what it tells clients there."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerKeys):
    """One broker's identity, places and settings; built once at start and passed down.

    `given` are the stated `settings` by Kafka's key, parsed; above them lie those made at run time,
    `dynamic_for_all` and then `dynamic`. A topic's effective settings are
    `config.log_config(overrides)`.
    """

    part: str
    node_id: int
    cluster_id: str
    log_dir: str
    listeners: Mapping[str, Listener]
    status_host: str
    status_port: int
    voters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """All brokers of a cluster of several, and at which host and port each listens for the others;
    a broker that is alone needs none."""
    given: Mapping[str, Value] = field(default_factory=dict)
    dynamic_for_all: Mapping[str, Value] = field(default_factory=dict)
    dynamic: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> BrokerConfig:
        """The configuration from the object on the settings descriptor; raises ConfigError."""
        settings = raw.get("settings") or {}
        if faults := check_settings(settings):
            raise ConfigError(faults)
        given = {key: parse(BROKER_ROWS[key][1], value) for key, value in settings.items()}
        try:
            status = raw.get("status") or {}
            config = cls(
                part=raw["part"],
                node_id=int(raw["node_id"]),
                cluster_id=raw["cluster_id"],
                log_dir=raw["log_dir"],
                listeners={name: Listener(**one) for name, one in raw["listeners"].items()},
                status_host=status.get("host", "127.0.0.1"),
                status_port=int(status.get("port", 0)),
                voters={
                    int(node_id): (one["host"], int(one["port"]))
                    for node_id, one in (raw.get("voters") or {}).items()
                },
                given=given,
                **_attributes(given),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError([("settings", repr(error), "a complete broker object")]) from error
        if config.voters:
            _check_voters(config)
        return config

    @property
    def configured_ids(self) -> tuple[int, ...]:
        """The ids of all brokers that the configuration names, rising."""
        return tuple(sorted({*self.voters, self.node_id}))

    @property
    def in_force(self) -> dict[str, Value]:
        """Every value that is set anywhere, by Kafka's key; the strongest where there are many."""
        return {**self.given, **self.dynamic_for_all, **self.dynamic}

    def with_dynamic(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> BrokerConfig:
        """The same node under these settings made at run time, in place of earlier ones.

        They were checked when they were made; one that this version has no row for, or reads
        otherwise, is left out, for a broker must not fail to start over it.
        """
        layers = [
            {key: value for key in layer for value in _understood(key, layer[key])}
            for layer in (for_all, for_this)
        ]
        config = replace(self, dynamic_for_all=layers[0], dynamic=layers[1])
        defaults = {attribute: row.default for attribute, row in rows(BrokerKeys)}
        return replace(config, **{**defaults, **_attributes(config.in_force)})

    def log_config(self, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """What applies to a topic that sets `overrides`."""
        return LogConfig.of(overrides or {}, self.in_force)


class InForce:
    """The node's configuration as it holds now; whoever follows changes made at run time reads it
    here each time."""

    __slots__ = ("config",)

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config


def _check_voters(config: BrokerConfig) -> None:
    """One of several is named among them, and has a listener at which the others find it."""
    if config.node_id not in config.voters:
        named = ", ".join(map(str, sorted(config.voters)))
        raise ConfigError([("voters", named, f"this broker, {config.node_id}, among them")])
    if BROKER_LISTENER not in config.listeners:
        names = ", ".join(sorted(config.listeners))
        raise ConfigError([("listeners", names, f"{BROKER_LISTENER} as well, for other brokers")])


def _attributes(values: Mapping[str, Value]) -> dict[str, Any]:
    """The fields of BrokerKeys that these settings fill."""
    return {BROKER_ROWS[key][0]: value for key, value in values.items() if BROKER_ROWS[key][0]}


def _understood(key: str, found: str) -> list[Value]:
    known = BROKER_ROWS.get(key)
    try:
        return [parse(known[1], found)] if known is not None and known[1].is_dynamic else []
    except WrongValue:
        return []


def _synonym_row(synonym: Synonym, row: Setting) -> Setting:
    unit = {60_000: "minutes", 3_600_000: "hours"}.get(synonym.factor, row.unit)
    high = row.high if synonym.factor == 1 else INT_MAX
    # As with Kafka: only the key in the setting's own unit changes while the broker runs.
    is_dynamic = synonym.factor == 1
    return Setting(
        synonym.key, row.kind, row.default, unit, row.why, row.low, high, row.choices, (),
        is_dynamic=is_dynamic, pattern=row.pattern, form=row.form,
    )  # fmt: skip


TOPIC_ROWS: dict[str, tuple[str, Setting]] = {
    row.key: (attribute, row) for attribute, row in rows(LogConfig)
}
"""Topic key -> (attribute of LogConfig, row)."""

BROKER_ROWS: dict[str, tuple[str, Setting]] = {
    **{
        synonym.key: ("", _synonym_row(synonym, row))
        for _, row in TOPIC_ROWS.values()
        for synonym in row.synonyms
    },
    **{row.key: (attribute, row) for attribute, row in rows(BrokerKeys)},
}
"""Broker key -> (attribute of BrokerConfig, or "" for the default of a topic setting, row)."""


FOREIGN_KEYS_MAX = 100
"""So many keys of brokers that no row is known for are kept, for one node and for all."""

FOREIGN_KEY_LENGTH_MAX = 249


def foreign_setting(key: str) -> Setting:
    """The row of a broker key that only somebody else knows: kept and shown, and never read.

    Kafka takes any name at run time, for its plug-ins have settings of their own, and tools set
    some that only Kafka has a use for.
    """
    why = "no setting of this broker; kept because it was set, and without any effect"
    return Setting(key, Kind.STRING, "", "", why, None, None, (), (), is_dynamic=True)


def check_dynamic_settings(settings: Mapping[str, str]) -> list[Fault]:
    """The first faults in what is set for brokers at run time, keys nobody knows here included."""
    foreign = [key for key in settings if key not in BROKER_ROWS]
    faults = check_settings({key: settings[key] for key in settings if key in BROKER_ROWS})
    if len(foreign) > FOREIGN_KEYS_MAX:
        wanted = f"at most {FOREIGN_KEYS_MAX} keys that are no settings of this broker"
        faults.append((foreign[-1], f"{len(foreign)} of them", wanted))
    faults.extend(
        (key[:FOREIGN_KEY_LENGTH_MAX], len(key), f"at most {FOREIGN_KEY_LENGTH_MAX} characters")
        for key in foreign
        if not 0 < len(key) <= FOREIGN_KEY_LENGTH_MAX
    )
    return faults


def check_settings(settings: Mapping[str, object]) -> list[Fault]:
    """The first faults in a `cluster.settings` section; empty when it is right."""
    return _check(settings, BROKER_ROWS, "broker")


def check_topic_settings(settings: Mapping[str, object], *, suggests: bool = True) -> list[Fault]:
    """The first faults in a topic's settings, from the file or a request; empty when right."""
    faults = _check(settings, TOPIC_ROWS, "topic", suggests=suggests)
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if not faults and (least in settings or most in settings):
        low, high = (
            parse(row, settings.get(key, row.default))
            for key, row in ((key, TOPIC_ROWS[key][1]) for key in (least, most))
        )
        if low > high:  # type: ignore[operator]  # both are whole numbers
            faults.append((least, low, f"at most {most}, which is {high}"))
    return faults


def topic_settings_text(settings: Mapping[str, object]) -> dict[str, str]:
    """Checked topic settings as the metadata log keeps them: Kafka's spelling of each value."""
    return {key: text(parse(TOPIC_ROWS[key][1], value)) for key, value in settings.items()}


def _check(
    settings: Mapping[str, object],
    table: Mapping[str, tuple[str, Setting]],
    what: str,
    *,
    suggests: bool = True,
) -> list[Fault]:
    """The search for a key that was meant takes longest: only the first unknown one gets it."""
    faults: list[Fault] = []
    for key, value in settings.items():
        if len(faults) == FAULT_COUNT_MAX:
            break
        known = table.get(key)
        if known is None:
            meant = nearest(key, table) if suggests else ""
            suggests = False
            faults.append((key, value, f"a {what} setting this broker has{meant}"))
            continue
        try:
            parse(known[1], value)
        except WrongValue as error:
            faults.append((key, value, str(error)))
    return faults

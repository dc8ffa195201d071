"""One broker's configuration, built from the tables of settings, and its checks.

This module is pure and does not use pydantic, because a broker process must stay small.
`topic_keys.LogConfig` has the settings that a topic can override, and `node_keys.BrokerKeys` the
settings of the broker itself. `given` has the settings in the file. Settings made at run time
override them: first those for all brokers, then those for this broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.node_keys import BrokerKeys
from broker.settings import (
    INT_MAX,
    ConfigError,
    ConfigType,
    Fault,
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
"""The listener for other brokers. Clients and the mill's parts use the other listeners."""
MILL_LISTENER = "MILL"
"""The listener for the mill's own parts, such as the collector and the stream."""

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_SSL = "SASL_SSL"
"""Kafka's names of the security protocols that a listener can have."""

FAULT_COUNT_MAX = 20
"""The largest number of wrong settings that one answer names. A client can send thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The address of one listener, and the address that it advertises to clients."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    security_protocol: str = PLAINTEXT

    @property
    def has_tls(self) -> bool:
        """True if the listener encrypts its connections."""
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def needs_login(self) -> bool:
        """True if clients must log in."""
        return self.security_protocol == SASL_SSL


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files in PEM format with which a broker proves its identity."""

    certificate: str
    """The certificate and its chain, without the root."""
    key: str
    ca: str | None = None
    """The CAs that must have signed the certificate. Between brokers, the CAs that must have signed
    the certificates of both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerKeys):
    """One broker's identity, addresses and settings, built once at the start.

    `given` has the parsed `settings` of the file by Kafka's key. Settings made at run time override
    them: `dynamic_for_all`, then `dynamic`. A topic's effective settings are
    `config.log_config(overrides)`.
    """

    part: str
    node_id: int
    cluster_id: str
    log_dir: str
    listeners: Mapping[str, Listener]
    status_host: str
    status_port: int
    rack: str | None = None
    """The rack of the node (`broker.rack`), which spreads the replicas of a partition."""
    tls: TlsFiles | None = None
    """The certificate files for clients; None if none of their listeners has TLS."""
    link_tls: TlsFiles | None = None
    """The certificate files for the connections between brokers; None if they have no TLS."""
    login_secret: bytes = field(default=b"", repr=False)
    """The secret of the cluster from which the salts of unknown users are made. It is empty if no
    listener requires a login."""
    voters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """All brokers of a cluster, with the host and port on which each listens for the others. Empty
    for a broker that is configured alone."""
    joins: bool = False
    """True if the broker joins the existing cluster `cluster_id` when its data folder is empty. It
    starts as an observer, and takes no part in the birth of a cluster."""
    given: Mapping[str, Value] = field(default_factory=dict)
    dynamic_for_all: Mapping[str, Value] = field(default_factory=dict)
    dynamic: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> BrokerConfig:
        """Return the configuration in the JSON object from the settings descriptor.

        Raises ConfigError if a setting is wrong or missing.
        """
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
                rack=raw.get("rack"),
                tls=TlsFiles(**raw["tls"]) if raw.get("tls") else None,
                link_tls=TlsFiles(**raw["link_tls"]) if raw.get("link_tls") else None,
                login_secret=(raw.get("login_secret") or "").encode(),
                voters={
                    int(node_id): (one["host"], int(one["port"]))
                    for node_id, one in (raw.get("voters") or {}).items()
                },
                joins=bool(raw.get("joins")),
                given=given,
                **_attributes(given),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError([("settings", repr(error), "a complete broker object")]) from error
        if config.voters:
            _check_voters(config)
        if config.joins and len(config.configured_ids) == 1:
            raise ConfigError([("joins", True, "other brokers in voters, which to ask")])
        _check_security(config)
        return config

    @property
    def super_user_names(self) -> frozenset[str]:
        """The names of the users that may do everything, without `User:`."""
        return frozenset(one.removeprefix("User:") for one in self.super_users.split(";") if one)

    @property
    def configured_ids(self) -> tuple[int, ...]:
        """The ids of all configured brokers, in ascending order."""
        return tuple(sorted({*self.voters, self.node_id}))

    @property
    def in_force(self) -> dict[str, Value]:
        """Every value that is set, by Kafka's key. If a key is set in several places, this is the
        value that overrides the others."""
        return {**self.given, **self.dynamic_for_all, **self.dynamic}

    def with_dynamic(self, for_all: Mapping[str, str], for_this: Mapping[str, str]) -> BrokerConfig:
        """Return a copy with these run-time settings in place of earlier ones.

        They were checked when they were set. A key or value that this version does not understand
        is skipped, because it must not prevent a broker from starting.
        """
        layers = [
            {key: value for key in layer for value in _understood(key, layer[key])}
            for layer in (for_all, for_this)
        ]
        config = replace(self, dynamic_for_all=layers[0], dynamic=layers[1])
        defaults = {attribute: row.default for attribute, row in rows(BrokerKeys)}
        return replace(config, **{**defaults, **_attributes(config.in_force)})

    def log_config(self, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """Return the settings of a topic that overrides `overrides`."""
        return LogConfig.of(overrides or {}, self.in_force)


class InForce:
    """The broker's current configuration.

    Code that must follow changes at run time reads `config` on every use.
    """

    __slots__ = ("config",)

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config


def _check_voters(config: BrokerConfig) -> None:
    """Check that this broker is one of the voters and has a listener for the others. Raises
    ConfigError."""
    if config.node_id not in config.voters:
        named = ", ".join(map(str, sorted(config.voters)))
        raise ConfigError([("voters", named, f"this broker, {config.node_id}, among them")])
    if BROKER_LISTENER not in config.listeners:
        names = ", ".join(sorted(config.listeners))
        raise ConfigError([("listeners", names, f"{BROKER_LISTENER} as well, for other brokers")])


def _check_security(config: BrokerConfig) -> None:
    """Check the security protocol of each listener, and that the files for it are configured.
    Raises ConfigError."""
    for name, listener in config.listeners.items():
        key, found = f"listeners.{name}.security_protocol", listener.security_protocol
        if found not in (PLAINTEXT, SSL, SASL_SSL):
            raise ConfigError([(key, found, f"{PLAINTEXT}, {SSL} or {SASL_SSL}")])
        if name == BROKER_LISTENER:
            _check_link_tls(config.link_tls, key, listener)
            continue
        if listener.has_tls and config.tls is None:
            raise ConfigError([("tls", None, f"certificate and key, because {key} is {found}")])
        if listener.needs_login and not config.login_secret:
            raise ConfigError([("login_secret", None, f"a secret, because {key} is {found}")])
    if config.link_tls is not None and BROKER_LISTENER not in config.listeners:
        expected = f"null, because there is no listener {BROKER_LISTENER}"
        raise ConfigError([("link_tls", "certificate and key", expected)])


def _check_link_tls(files: TlsFiles | None, key: str, listener: Listener) -> None:
    """Check that the listener for other brokers has TLS if, and only if, `link_tls` has files for
    it. Raises ConfigError."""
    found = listener.security_protocol
    if listener.needs_login:
        raise ConfigError([(key, found, f"{PLAINTEXT} or {SSL}: brokers show certificates")])
    if listener.has_tls and files is None:
        expected = f"certificate, key and ca, because {key} is {found}"
        raise ConfigError([("link_tls", None, expected)])
    if files is not None and not listener.has_tls:
        raise ConfigError([(key, found, f"{SSL}, because link_tls has files")])
    if files is not None and files.ca is None:
        raise ConfigError([("link_tls.ca", None, f"a CA, because {key} is {found}")])


def _attributes(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the values of these settings, by the name of the field of BrokerKeys."""
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
    # As in Kafka, only the key in the setting's own unit can be changed at run time.
    is_dynamic = synonym.factor == 1
    return Setting(
        synonym.key, row.kind, row.default, unit, row.why, row.low, high, row.choices, (),
        is_dynamic=is_dynamic, pattern=row.pattern, form=row.form,
    )  # fmt: skip


TOPIC_ROWS: dict[str, tuple[str, Setting]] = {
    row.key: (attribute, row) for attribute, row in rows(LogConfig)
}
"""The attribute of LogConfig and the row of each topic setting, by Kafka's key."""

BROKER_ROWS: dict[str, tuple[str, Setting]] = {
    **{
        synonym.key: ("", _synonym_row(synonym, row))
        for _, row in TOPIC_ROWS.values()
        for synonym in row.synonyms
    },
    **{row.key: (attribute, row) for attribute, row in rows(BrokerKeys)},
}
"""The attribute of BrokerConfig and the row of each broker setting, by Kafka's key. The attribute
is empty for a key that sets the default of a topic setting."""


FOREIGN_KEYS_MAX = 100
"""The largest number of unknown broker keys that are stored, for one broker and for all brokers."""

FOREIGN_KEY_LENGTH_MAX = 249


def foreign_setting(key: str) -> Setting:
    """Return a definition for a broker key that this broker does not know. Its value is stored and
    shown, but not used.

    As Kafka does, the broker accepts any key at run time: Kafka's plug-ins have their own settings,
    and tools set some keys that only Kafka uses.
    """
    why = "not a setting of this broker; stored because it was set, without any effect"
    return Setting(key, ConfigType.STRING, "", "", why, None, None, (), (), is_dynamic=True)


def check_dynamic_settings(settings: Mapping[str, str]) -> list[Fault]:
    """Return the first faults in broker settings that are made at run time; empty if there is none.
    An unknown key is a fault only if it is too long or not well-formed."""
    foreign = [key for key in settings if key not in BROKER_ROWS]
    faults = check_settings({key: settings[key] for key in settings if key in BROKER_ROWS})
    if len(foreign) > FOREIGN_KEYS_MAX:
        wanted = f"at most {FOREIGN_KEYS_MAX} keys that are not settings of this broker"
        faults.append((foreign[-1], f"{len(foreign)} of them", wanted))
    faults.extend(
        (key[:FOREIGN_KEY_LENGTH_MAX], len(key), f"at most {FOREIGN_KEY_LENGTH_MAX} characters")
        for key in foreign
        if not 0 < len(key) <= FOREIGN_KEY_LENGTH_MAX
    )
    return faults


def check_settings(settings: Mapping[str, object]) -> list[Fault]:
    """Return the first faults in a `cluster.settings` section; empty if there is none."""
    return _check(settings, BROKER_ROWS, "broker")


def check_topic_settings(settings: Mapping[str, object], *, suggests: bool = True) -> list[Fault]:
    """Return the first faults in a topic's settings, from the file or a request; empty if there is
    none."""
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
    """Return checked topic settings as text in Kafka's spelling, for the metadata log."""
    return {key: text(parse(TOPIC_ROWS[key][1], value)) for key, value in settings.items()}


def _check(
    settings: Mapping[str, object],
    table: Mapping[str, tuple[str, Setting]],
    what: str,
    *,
    suggests: bool = True,
) -> list[Fault]:
    """Return the first faults in the settings.

    Only the first unknown key gets a suggestion, because the search for a similar key is slow.
    """
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

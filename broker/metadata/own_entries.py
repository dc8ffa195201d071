"""A node's identity under Kafka's keys, for DescribeConfigs: its id, addresses and folder.

This module is pure. These keys cannot be set in `cluster.settings` or at run time, because they
come from other parts of the configuration file.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import BrokerConfig
from broker.settings import ConfigType, Setting
from protocol.security.address import bracketed
from protocol.security.scram import MECHANISMS

OwnValue = str | None

PROCESS_ROLES = "broker,controller"


def own_values(config: BrokerConfig) -> list[tuple[Setting, OwnValue]]:
    """Return each key with its value.

    A value is None if the key is not set, for which Kafka shows null.
    """
    return [(row, value_of(config)) for row, value_of in _OWN]


def _listeners(config: BrokerConfig) -> str:
    return ",".join(_url(name, one.host, one.port) for name, one in config.listeners.items())


def _advertised_listeners(config: BrokerConfig) -> str:
    return ",".join(
        _url(name, one.advertised_host, one.advertised_port)
        for name, one in config.listeners.items()
    )


def _security_protocols(config: BrokerConfig) -> str:
    return ",".join(f"{name}:{one.security_protocol}" for name, one in config.listeners.items())


def _url(name: str, host: str, port: int) -> str:
    return f"{name}://{bracketed(host)}:{port}"


def _row(key: str, kind: ConfigType, why: str) -> Setting:
    return Setting(key, kind, "", "", why, None, None, (), ())


_OWN: tuple[tuple[Setting, Callable[[BrokerConfig], OwnValue]], ...] = (
    (
        _row("advertised.listeners", ConfigType.LIST, "where clients of each listener are sent"),
        _advertised_listeners,
    ),
    (
        _row("broker.id", ConfigType.INT, "the number of this node, under its older name"),
        lambda config: str(config.node_id),
    ),
    (
        _row("broker.rack", ConfigType.STRING, "the rack of this node"),
        lambda config: config.rack,
    ),
    (
        _row("listener.security.protocol.map", ConfigType.STRING, "how each listener is secured"),
        _security_protocols,
    ),
    (_row("listeners", ConfigType.LIST, "where the node listens"), _listeners),
    (
        _row("log.dirs", ConfigType.LIST, "the folder of all partitions"),
        lambda config: config.log_dir,
    ),
    (
        _row("node.id", ConfigType.INT, "the number of this node in its cluster"),
        lambda config: str(config.node_id),
    ),
    (
        _row("sasl.enabled.mechanisms", ConfigType.LIST, "how clients can log in"),
        lambda _: ",".join(MECHANISMS),
    ),
    (
        _row("process.roles", ConfigType.LIST, "what this process does in its cluster"),
        lambda _: PROCESS_ROLES,
    ),
)

OWN_KEYS = frozenset(row.key for row, _ in _OWN)
"""The keys that cannot be changed at run time."""

"""The replication settings of the bundled brokers, and the check of the replication settings in the
file.

This module is pure. The number of brokers decides: with three or more, each partition has three
replicas, two of which must be in sync before a write is acknowledged. A Kafka key in the file
overrides these values, if there are enough brokers for its value.
"""

from collections.abc import Iterator, Mapping

from appliance.config.document import Document
from appliance.config.faults import found_text
from appliance.config.model import BROKER_COUNTS, MillConfig, Scalar
from broker.config import BROKER_ROWS, TOPIC_ROWS
from broker.node_keys import (
    DEFAULT_FACTOR,
    FACTORS,
    TRANSACTIONS_FACTOR,
    TRANSACTIONS_MIN_ISR,
)
from broker.settings import Setting, WrongValue, parse

REPLICAS = max(BROKER_COUNTS)
"""The number of replicas of a partition, unless there are fewer brokers."""

MIN_ISR = "min.insync.replicas"


def replication_settings(brokers: int) -> dict[str, Scalar]:
    """Return the broker settings that follow from the number of brokers; empty for a single
    broker.
    """
    if brokers == 1:
        return {}
    # The minimum is one less than all replicas. So writes continue after the loss of any one
    # broker, and an acknowledged write survives that loss.
    factor = min(brokers, REPLICAS)
    return {**dict.fromkeys(FACTORS, factor), MIN_ISR: factor - 1}


def check_replication(config: MillConfig, document: Document) -> None:
    """Append the settings that the configured number of brokers cannot satisfy."""
    brokers = len(config.cluster.broker_ids)
    stated = config.cluster.settings
    of_all = f"the number of brokers, {brokers}"
    for key in FACTORS:
        for value in _above(stated, key, brokers, BROKER_ROWS[key][1]):
            document.add(("cluster", "settings", key), value, f"at most {of_all}")
    factor = _factor(config, DEFAULT_FACTOR)
    for min_isr, of_what in (
        (MIN_ISR, DEFAULT_FACTOR),
        (TRANSACTIONS_MIN_ISR, TRANSACTIONS_FACTOR),
    ):
        most = _factor(config, of_what)
        named = f"{of_what}, which is {most}" if of_what in stated or most < brokers else of_all
        for value in _above(stated, min_isr, most, BROKER_ROWS[min_isr][1]):
            document.add(("cluster", "settings", min_isr), value, f"at most {named}")
    for index, topic in enumerate(config.topics):
        replicas = factor if topic.replication is None else topic.replication
        if replicas > brokers:
            # Check only a replication factor that the file sets for this topic. A default that is
            # too large has already been reported.
            if topic.replication is not None:
                document.add(("topics", index, "replication"), str(replicas), f"at most {of_all}")
            continue
        for value in _above(topic.settings, MIN_ISR, replicas, TOPIC_ROWS[MIN_ISR][1]):
            document.add(
                ("topics", index, "settings", MIN_ISR),
                value,
                f"at most the topic's replicas, {replicas}",
            )


def _factor(config: MillConfig, key: str) -> int:
    """Return the replication factor that this key sets; by default that of the bundled brokers."""
    brokers = min(len(config.cluster.broker_ids), REPLICAS)
    stated = config.cluster.settings.get(key)
    return brokers if stated is None else _number(stated, BROKER_ROWS[key][1], brokers)


def _above(settings: Mapping[str, Scalar], key: str, most: int, row: Setting) -> Iterator[str]:
    """If the value of a key is above `most`, yield it in the form for a fault; otherwise yield
    nothing."""
    if key in settings and _number(settings[key], row, most) > most:
        yield found_text(settings[key])


def _number(stated: Scalar, row: Setting, otherwise: int) -> int:
    """Return a setting as a number. If it is not a number, return `otherwise`, because another
    check reports that.
    """
    try:
        value = parse(row, stated)
    except WrongValue:
        return otherwise
    assert isinstance(value, int), f"{row.key} counts replicas"
    return value

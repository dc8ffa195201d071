"""Hosts that only collect: their lines go to the mill of another host, which counts them.

This module is pure.
"""

from appliance.config.document import Document
from appliance.config.model import MillConfig


def only_collects(config: MillConfig) -> bool:
    """Return True if the only part of this configuration is a collector."""
    sinks = config.sinks
    return (
        config.cluster.bootstrap_servers is not None
        and not config.stream.metrics
        and sinks.mysql is None
        and sinks.redis is None
    )


def check_sinks(config: MillConfig, document: Document) -> None:
    """Append a fault if no sink is on, unless the host only collects."""
    if config.sinks.redis is None and config.sinks.mysql is None and not only_collects(config):
        document.add(("sinks",), "redis: null and mysql: null", "at least one sink")

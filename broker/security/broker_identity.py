"""The broker that a certificate belongs to.

A certificate of a broker has exactly one name of the form `broker-N` among its DNS names
(subjectAltName), and the id of the cluster as its organisation. TLS has verified the chain, the
dates and the purpose before. The common name is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"broker-(0|[1-9][0-9]{0,9})", re.ASCII)


class WrongBroker(Exception):
    """A verified certificate that is not the certificate of the expected broker.

    The text continues the sentence "It shows a certificate that …".
    """


def broker_name(node_id: int) -> str:
    """Return the name of a broker in its certificate."""
    return f"broker-{node_id}"


def broker_of(
    certificate: Mapping[str, Any] | None, cluster_id: str, expected_id: int | None = None
) -> int:
    """Return the id of the broker to which a verified certificate belongs.

    `certificate` is in the form of `ssl`. Without `expected_id` the certificate can belong to any
    broker of the cluster. Raises WrongBroker.
    """
    shown = certificate or {}
    clusters = [
        value
        for part in shown.get("subject", ())
        for key, value in part
        if key == "organizationName"
    ]
    if clusters != [cluster_id]:
        found = ", ".join(clusters) or "no cluster"
        raise WrongBroker(f"is of {found}, expected cluster {cluster_id}")
    names = [value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"]
    ids = [int(found[1]) for found in map(_NAME.fullmatch, names) if found]
    if len(ids) != 1:
        found = ", ".join(map(broker_name, ids)) or "no broker"
        raise WrongBroker(f"names {found}, expected one name of the form broker-N")
    if expected_id is not None and ids[0] != expected_id:
        raise WrongBroker(f"is of broker {ids[0]}, expected broker {expected_id}")
    return ids[0]

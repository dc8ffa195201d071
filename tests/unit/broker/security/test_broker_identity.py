"""The broker that a certificate belongs to, from the certificate as `ssl` shows it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.broker_identity import WrongBroker, broker_of

CLUSTER = "the-cluster"


def shown(*names: str, cluster: str = CLUSTER, kind: str = "DNS") -> dict[str, Any]:
    subject = ((("organizationName", cluster),), (("commonName", "anything"),))
    return {"subject": subject, "subjectAltName": tuple((kind, name) for name in names)}


@pytest.mark.parametrize("node_id", [0, 1, 7, 2_147_483_647])
def test_the_only_name_of_a_broker_counts(node_id: int) -> None:
    found = shown("mill-1.example.org", f"broker-{node_id}", "localhost")
    assert broker_of(found, CLUSTER) == node_id
    assert broker_of(found, CLUSTER, node_id) == node_id


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (None, "is of no cluster"),
        ({}, "is of no cluster"),
        (shown("broker-2", cluster="another"), "is of another, expected cluster the-cluster"),
        (shown(), "names no broker"),
        (shown("redis"), "names no broker"),
        (shown("broker-2", "broker-3"), "names broker-2, broker-3"),
        (shown("broker-2", "broker-2"), "names broker-2, broker-2"),
        (shown("broker-2", kind="URI"), "names no broker"),
        (shown("BROKER-2"), "names no broker"),
        (shown("broker-02"), "names no broker"),
        (shown("broker-+2"), "names no broker"),
        (shown("broker-2.example.org"), "names no broker"),
        (shown("xbroker-2"), "names no broker"),
        (shown("broker-\u0662"), "names no broker"),
        (shown("broker-2\n"), "names no broker"),
        (shown("broker-*"), "names no broker"),
        (shown("*"), "names no broker"),
        (shown("broker-3"), "is of broker 3, expected broker 2"),
    ],
)
def test_every_other_certificate_is_refused(certificate: Any, said: str) -> None:
    with pytest.raises(WrongBroker, match=said):
        broker_of(certificate, CLUSTER, 2)


def test_two_organisations_are_no_cluster() -> None:
    found = shown("broker-2")
    found["subject"] += ((("organizationName", "another"),),)
    with pytest.raises(WrongBroker, match="is of the-cluster, another"):
        broker_of(found, CLUSTER)

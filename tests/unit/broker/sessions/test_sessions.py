"""The number of accepted connections: each limit is reached, and a closed connection frees its
place."""

from dataclasses import replace
from typing import Any

import pytest

from broker.config import InForce, Listener
from broker.sessions.sessions import SILENT_PEERS_MAX, Sessions
from tests.unit.storage.kit import broker_config


def connections(**settings: object) -> Sessions:
    return Sessions(
        InForce(broker_config({key.replace("_", "."): one for key, one in settings.items()}))
    )


class Peer:
    def __init__(self, host: str, listener: str) -> None:
        self.peer_host = host
        self.listener_name = listener
        self.has_spoken = False


def connection(host: str = "1.1.1.1", listener: str = "HOST") -> Any:
    return Peer(host, listener)


def test_all_together_have_a_limit() -> None:
    kept = connections(max_connections=2)
    first, second = connection("a"), connection("b")
    assert [kept.admit(one, 0) for one in (first, second)] == ["", ""]
    assert kept.admit(connection("c"), 0) == "max.connections 2 is reached"
    kept.release(first)
    assert kept.admit(connection("c"), 0) == ""


def test_each_host_has_a_limit() -> None:
    kept = connections(max_connections_per_ip=1)
    first = connection("a")
    assert kept.admit(first, 0) == ""
    assert kept.admit(connection("a"), 0) == "max.connections.per.ip 1 is reached"
    assert kept.admit(connection("b"), 0) == ""
    kept.release(first)
    assert kept.admit(connection("a"), 0) == ""


def test_new_ones_in_a_second_have_a_limit_and_refused_ones_count() -> None:
    kept = connections(max_connection_creation_rate=2)
    assert [bool(kept.admit(connection(), now_ms)) for now_ms in (5_000, 5_999, 5_999)] == [
        False, False, True,
    ]  # fmt: skip
    assert kept.admit(connection(), 6_000) == ""


def test_those_that_say_nothing_have_a_limit() -> None:
    kept = connections(max_silent_connections=2)
    first, second = connection(), connection()
    assert [kept.admit(one, 0) for one in (first, second)] == ["", ""]
    assert kept.admit(connection(), 0) == "max.silent.connections 2 is reached"
    first.has_spoken = True
    kept.spoke(first)
    assert kept.admit(connection(), 0) == ""
    kept.release(second)
    assert kept.admit(connection(), 0) == ""
    # `first` has sent a request and is not silent any more, so its end frees no place.
    kept.release(first)
    assert kept.admit(connection(), 0) != ""


def test_a_refused_connection_leaves_nothing() -> None:
    kept = connections(max_connections=1)
    kept.admit(connection(), 0)
    refused = connection("b")
    assert kept.admit(refused, 0)
    kept.release(refused)
    assert (len(kept.open), kept.tally("HOST").silent_count) == (1, 1)


@pytest.mark.parametrize(
    "limit",
    [
        "max_connections",
        "max_connections_per_ip",
        "max_connection_creation_rate",
        "max_silent_connections",
    ],
)
@pytest.mark.parametrize("own", ["MILL", "BROKER"])
def test_clients_take_no_place_of_our_own_parts(limit: str, own: str) -> None:
    kept = connections(**{limit: 1})
    assert kept.admit(connection(), 0) == ""
    assert kept.admit(connection(), 0) != ""
    inside = connection(listener=own)
    assert kept.admit(inside, 0) == ""
    # Connections of an internal listener have the same limits among themselves.
    assert kept.admit(connection(listener=own), 0) == f"{limit.replace('_', '.')} 1 is reached"
    kept.release(inside)
    assert kept.admit(connection(listener=own), 2_000) == ""
    assert kept.admit(connection(), 2_000) == (
        "" if limit == "max_connection_creation_rate" else f"{limit.replace('_', '.')} 1 is reached"
    )


def test_pitfall_32_a_stranger_keeps_no_brokers_apart() -> None:
    """Anyone can begin a handshake with the listener for brokers. With handshakes that it does not
    complete, one address cannot use up the connections of others."""
    address = Listener(
        host="", port=1, advertised_host="", advertised_port=1, security_protocol="SSL"
    )
    config = broker_config({"max.silent.connections": 1_000})
    kept = Sessions(InForce(replace(config, listeners={"BROKER": address, "NET": address})))
    flood = [connection("10.0.0.7", "BROKER") for _ in range(SILENT_PEERS_MAX)]
    assert {kept.admit(one, 0) for one in flood} == {""}
    refusal = kept.admit(connection("10.0.0.7", "BROKER"), 0)
    assert refusal == "64 connections of 10.0.0.7 have not completed their TLS handshake"
    broker = connection("10.0.0.2", "BROKER")
    assert kept.admit(broker, 0) == ""
    # Clients have other limits, and an established connection is not counted any more.
    assert kept.admit(connection("10.0.0.7", "NET"), 0) == ""
    flood[0].has_spoken = True
    kept.spoke(flood[0])
    assert kept.admit(connection("10.0.0.7", "BROKER"), 0) == ""
    assert kept.admit(connection("10.0.0.7", "BROKER"), 0) == refusal
    for one in (*flood, broker):
        kept.release(one)
    assert kept.tally("BROKER").silent_per_host == {"10.0.0.7": 1}


def test_on_plain_links_a_flood_of_one_address_has_the_usual_limit() -> None:
    """All brokers of one machine have its address."""
    kept = connections()
    many = [connection(listener="BROKER") for _ in range(2 * SILENT_PEERS_MAX)]
    assert {kept.admit(one, 0) for one in many} == {""}


def test_pitfall_37_a_flood_of_one_address_takes_no_place_of_others() -> None:
    """KIP-612: connections that the quota of their address refuses count for no other limit."""
    kept = connections(max_connection_creation_rate=30, max_connections=50)
    kept.rates.use({(("ip", "10.0.0.7"),): {"connection_creation_rate": 1.0}})
    flood = [kept.admit(connection("10.0.0.7"), 0) for _ in range(1_000)]
    assert flood.count("") == 10
    assert set(flood) == {"", "connection_creation_rate 1 of 10.0.0.7 is reached"}
    assert [kept.admit(connection("10.0.0.8"), 0) for _ in range(20)] == [""] * 20


@pytest.mark.parametrize("own", ["MILL", "BROKER"])
def test_quotas_of_addresses_do_not_limit_our_own_parts(own: str) -> None:
    kept = connections()
    kept.rates.use({(("ip", None),): {"connection_creation_rate": 1.0}})
    assert [kept.admit(connection(listener=own), 0) for _ in range(50)] == [""] * 50


@pytest.mark.parametrize("own", ["MILL", "BROKER"])
def test_what_clients_hold_takes_no_memory_of_our_own_parts(own: str) -> None:
    """Otherwise a flood of clients would close the quorum's connections."""
    kept = connections(queued_max_request_bytes=2_000)
    refusal = "queued.max.request.bytes 2000 is reached by all connections"
    client, inside = connection(), connection(listener=own)
    assert kept.account(client, 2_000) == ""
    assert kept.account(client, 1) == refusal
    assert kept.account(inside, 2_000) == ""
    assert kept.account(inside, 1) == refusal
    kept.account(client, -2_001)
    assert kept.account(client, 2_000) == ""
    assert kept.buffer_bytes == 4_001


def test_they_are_numbered_in_the_order_in_which_they_come() -> None:
    kept = connections(max_connections=2)
    first, second, third = connection("a"), connection("b"), connection("c")
    for one in (first, second):
        assert kept.admit(one, 0) == ""
    kept.release(first)
    assert kept.admit(third, 0) == ""
    assert first.number < second.number < third.number

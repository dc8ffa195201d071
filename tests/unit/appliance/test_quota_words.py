"""The words of `millrace quota` and the entities of `kafka-configs`, before a broker is asked."""

from __future__ import annotations

import pytest

from appliance.kafka import quotas
from appliance.kafka_tools import configs
from appliance.output import CommandError
from protocol.security.quota import (
    CONNECTION_RATE,
    FETCH_RATE,
    MUTATION_RATE,
    PRODUCE_RATE,
    REQUEST_SHARE,
)

SERVER = ("--bootstrap-server", "127.0.0.1:1")


def test_values_have_units() -> None:
    found = quotas.values_of(["produce=20MiB", "consume=512", "requests=12.5"])
    assert found == {PRODUCE_RATE: 20 << 20, FETCH_RATE: 512, REQUEST_SHARE: 12.5}
    row = quotas.row_of((("client-id", None), ("user", "shop")), {PRODUCE_RATE: 20 << 20})
    assert row == {
        "for": "user shop, default client-id",
        "produce": "20MiB/s",
        "consume": None,
        "requests": None,
        "mutations": None,
        "connections": None,
    }
    assert quotas.values_of(["connections=20"]) == {CONNECTION_RATE: 20}
    assert quotas.values_of(["mutations=0.5"]) == {MUTATION_RATE: 0.5}
    row = quotas.row_of((("ip", None),), {CONNECTION_RATE: 20})
    assert (row["for"], row["connections"]) == ("default ip", "20/s")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("write=1", "found 'write=1', expected produce=SIZE"),
        ("produce", "found 'produce', expected produce=SIZE"),
        ("produce=much", "produce: found"),
        ("produce=0", "produce: found 0, expected more than 0"),
        ("requests=nan", "requests: found nan, expected more than 0"),
        ("requests=x", "requests: could not convert"),
    ],
)
def test_wrong_values_are_refused(word: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        quotas.values_of([word])
    assert said in str(raised.value)


def test_an_entity_is_a_user_a_client_id_or_both() -> None:
    assert quotas.entity_named("shop", False, None, True) == (
        ("client-id", None),
        ("user", "shop"),
    )
    with pytest.raises(CommandError, match="whose quota"):
        quotas.entity_named(None, False, None, False)
    with pytest.raises(CommandError, match="found both --user and --default-user"):
        quotas.entity_named("shop", True, None, False)
    assert quotas.keys_of(()) == [PRODUCE_RATE, FETCH_RATE, REQUEST_SHARE, MUTATION_RATE,
                                   CONNECTION_RATE]  # fmt: skip
    assert quotas.entity_named(ip="10.0.0.7") == (("ip", "10.0.0.7"),)
    assert quotas.entity_named(default_ip=True) == (("ip", None),)
    with pytest.raises(CommandError, match="found 'write', expected produce"):
        quotas.keys_of(["write"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--alter --ip 10.0.0.7 --add-config producer_byte_rate=1",
            "Only connection quota configs can be added for 'ips' using --bootstrap-server."
            " Unexpected config names: producer_byte_rate",
        ),
        ("--describe --ip 10.0.0.7 --user shop", "expected one --entity-type"),
        ("--describe --entity-type users --entity-type topics", "expected one --entity-type"),
        ("--describe --entity-type users --entity-type users", "expected one --entity-type"),
        ("--describe --client c --entity-name d", "more entity names than entity types"),
        ("--describe --entity-type topics --entity-default", "topics have no default settings"),
        ("--alter --entity-type clients --add-config a=1", "an entity name must be specified"),
        (
            "--alter --user u --entity-type clients --add-config a=1",
            "an entity name must be specified",
        ),
        (
            "--alter --client c --add-config retention.ms=1",
            "Only quota configs can be added for 'clients' using --bootstrap-server. Unexpected"
            " config names: retention.ms",
        ),
        (
            "--alter --user-defaults --add-config SCRAM-SHA-512=[password=x]",
            "The use of --entity-default or --user-defaults is not allowed",
        ),
    ],
)
def test_entities_that_are_refused(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs.main((*SERVER, *options.split())) == 2
    assert said in capsys.readouterr().err

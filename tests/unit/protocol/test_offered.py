"""ApiVersions lists exactly the version ranges of the fact sheet, and each API has a handler."""

import pytest

from broker.node.tables import client_table
from protocol.client.versions import Versions
from protocol.messages.api import (
    BETWEEN_BROKERS,
    DECLARED,
    SERVED,
    UNSERVED,
    ApiKey,
    client_versions,
    request_class,
    response_class,
)
from tests.unit.broker.rig import Rig

# The column "offer first" of the protocol's facts: the first and the last version of each API key.
OFFERED = {
    0: (0, 9), 1: (4, 12), 2: (1, 7), 3: (0, 12), 8: (2, 8), 9: (1, 8), 10: (0, 4), 11: (0, 9),
    12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 4), 17: (0, 1), 18: (0, 4), 19: (2, 7),
    20: (1, 6), 21: (0, 2), 22: (0, 4), 23: (2, 4), 24: (0, 3), 25: (0, 3), 26: (0, 3), 27: (1, 1),
    28: (0, 3), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 4),
    36: (0, 2), 37: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0),
    48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 1), 60: (0, 2), 61: (0, 0),
    64: (0, 0), 65: (0, 0), 66: (0, 1), 74: (0, 0), 75: (0, 0), 80: (0, 1), 81: (0, 0),
}  # fmt: skip

# The APIs that brokers offer each other, with their versions (decision 0031).
OFFERED_TO_BROKERS = {
    1: (18, 18), 18: (0, 4), 24: (4, 4), 27: (1, 1), 52: (2, 2), 53: (1, 1), 54: (1, 1),
    56: (3, 3), 58: (0, 0), 59: (1, 1), 62: (4, 4), 63: (1, 1), 67: (0, 0),
    82: (0, 0), 20_000: (0, 0),
}  # fmt: skip


def test_what_is_listed_is_what_is_handled() -> None:
    handled = client_table(Rig().broker.parts).keys()
    assert handled == SERVED.keys()
    assert not UNSERVED & handled
    assert SERVED.keys() | UNSERVED == set(DECLARED)


def test_ranges_are_those_of_the_fact_sheet() -> None:
    assert {int(key): (span[0], span[-1]) for key, span in SERVED.items()} == OFFERED


def test_brokers_offer_each_other_what_the_fact_sheet_lists_and_nothing_of_it_to_clients() -> None:
    spans = {int(key): (span[0], span[-1]) for key, span in BETWEEN_BROKERS.items()}
    assert spans == OFFERED_TO_BROKERS
    assert all(key in DECLARED for key in BETWEEN_BROKERS)
    for key in BETWEEN_BROKERS.keys() & SERVED.keys() - {
        ApiKey.API_VERSIONS,
        ApiKey.WRITE_TXN_MARKERS,
    }:
        assert not set(BETWEEN_BROKERS[key]) & set(SERVED[key]), key


def test_our_client_asks_for_no_version_that_clients_are_not_offered() -> None:
    """Kafka itself offers Fetch 18, which uses topic ids that our client does not support."""
    everything = Versions("kafka", {int(key): range(100) for key in ApiKey})
    for key in SERVED:
        assert everything.choose(key) == OFFERED[key][1]


@pytest.mark.parametrize("key", BETWEEN_BROKERS, ids=lambda key: key.name.lower())
def test_what_brokers_speak_has_its_codec(key: ApiKey) -> None:
    for of in (request_class, response_class):
        for version in BETWEEN_BROKERS[key]:
            assert of(key).decode(of(key)().encode(version), version)[0] == of(key)()


@pytest.mark.parametrize("key", [int(key) for key in SERVED])
def test_no_version_between_the_first_and_the_last_lacks_its_codec(key: int) -> None:
    for of in (request_class, response_class):
        cls = of(key)
        # Versions 0 to 2 of Produce are listed for old librdkafka, but refused.
        first = 3 if key == ApiKey.PRODUCE else OFFERED[key][0]
        versions = range(first, OFFERED[key][1] + 1)
        assert client_versions(ApiKey(key)) == versions
        for version in versions:
            cls().encode(version)


def test_the_switches_that_change_clients_are_off() -> None:
    """Fact sheet §1.4: EndTxn 5 would switch on transactions V2, and API key 68 would switch on
    KIP-848."""
    assert SERVED[ApiKey.END_TXN][-1] < 5
    assert SERVED[ApiKey.TXN_OFFSET_COMMIT][-1] < 5
    assert SERVED[ApiKey.PRODUCE][-1] < 12
    # Keys 80 and 81 are served. Only operators send them, so they change no client.
    assert not {68, 69, 71, 72, *range(76, 80), *range(82, 93)} & {int(key) for key in SERVED}

"""The choice of the version in which a request goes to another broker."""

from __future__ import annotations

import pytest

from broker.sessions.versions import OWN_VERSIONS, answer_with, choose, shown, versions_in
from protocol.messages.api import (
    BETWEEN_BROKERS,
    FORWARDED,
    SERVED,
    ApiKey,
    request_class,
    response_class,
)
from protocol.messages.cluster import ApiVersionsResponse


@pytest.mark.parametrize(
    ("own", "other", "version"),
    [
        (range(2, 5), None, 2),
        (range(2, 5), range(2, 5), 4),
        (range(2, 5), range(9), 4),
        (range(2, 5), range(4), 3),
        (range(2, 5), range(4, 9), 4),
        (range(2, 5), range(3, 4), 3),
        (range(2, 5), range(5, 9), None),
        (range(2, 5), range(2), None),
        (range(2, 5), range(0), None),
        (range(2, 5), range(4, 3), None),
    ],
)
def test_the_highest_common_version_is_chosen_and_the_first_one_while_nothing_is_known(
    own: range, other: range | None, version: int | None
) -> None:
    assert choose(own, other) == version


def test_the_answer_has_every_range() -> None:
    answer, _ = ApiVersionsResponse.decode(answer_with(OWN_VERSIONS).encode(0), 0)
    assert versions_in(answer) == OWN_VERSIONS
    assert OWN_VERSIONS == {**BETWEEN_BROKERS, **FORWARDED}
    assert not BETWEEN_BROKERS.keys() & FORWARDED.keys(), "no request has two ranges"


@pytest.mark.parametrize("key", FORWARDED, ids=lambda key: key.name.lower())
def test_an_order_is_forwarded_in_the_newest_version_of_clients_which_has_its_codec(
    key: ApiKey,
) -> None:
    """Clients can use fields of the newest version, so an envelope must be able to carry it."""
    assert FORWARDED[key][-1] == SERVED[key][-1]
    for version in FORWARDED[key]:
        request_class(key)().encode(version)
        response_class(key)().encode(version)


def test_ranges_are_shown_with_both_ends() -> None:
    assert (shown(range(2, 5)), shown(range(0))) == ("2 to 4", "none")

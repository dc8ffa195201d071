"""The soak test of groups must notice when a member got another member's assignment."""

from __future__ import annotations

import sys

import pytest

from broker.coordinators.group_records import GroupMetadataMember, GroupMetadataValue
from tests.harness.group_log import Committed, Given, check_given
from tests.harness.group_member import membership


def share(*partitions: int) -> bytes:
    """Return a consumer's assignment for one topic, in version 0."""
    numbers = b"".join(one.to_bytes(4, "big") for one in partitions)
    counted = len(partitions).to_bytes(4, "big") + numbers
    return b"\0\0" + (1).to_bytes(4, "big") + b"\0\1t" + counted + b"\xff\xff\xff\xff"


def stored(generation: int, **shares: bytes) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="a",
        members=[
            GroupMetadataMember(
                member_id=name,
                client_id="c",
                client_host="h",
                session_timeout=1,
                subscription=b"",
                assignment=given,
            )
            for name, given in shares.items()
        ],
    )


LOG: list[GroupMetadataValue | Committed] = [
    stored(1, a=share(0, 1), b=b""),
    stored(2, a=share(0), b=share(1)),
]


def given(member_id: str, generation: int, *partitions: int) -> Given:
    return Given(member_id, generation, frozenset(partitions))


def test_shares_that_were_stored_are_counted_and_those_of_no_generation_left_out() -> None:
    whole = [given("a", 1, 0, 1), given("b", 1), given("a", 2, 0), given("b", 2, 1)]
    assert check_given([*whole, given("a", -1, 0)], LOG) == 4


@pytest.mark.parametrize(
    "wrong",
    [given("b", 2, 0), given("b", 1, 1), given("a", 2), given("a", 3, 0), given("c", 2, 1)],
    ids=str,
)
def test_a_share_that_was_not_stored_for_that_member_and_generation_is_noticed(
    wrong: Given,
) -> None:
    with pytest.raises(AssertionError, match="is not what was stored"):
        check_given([wrong], LOG)


def test_a_partition_given_to_two_members_in_one_generation_is_noticed() -> None:
    twice = [*LOG, stored(2, a=share(1), b=share(0))]
    with pytest.raises(AssertionError, match="was given to a too"):
        check_given([given("a", 2, 0), given("b", 2, 0)], twice)


def test_what_librdkafka_says_of_a_membership_is_read() -> None:
    generation = (7).to_bytes(4, sys.byteorder)
    assert membership(b"CGMDv2:" + generation + b"group\0member-1\0\x01") == ("member-1", 7)

"""A broker decides from addresses whether its disk was moved alone."""

from __future__ import annotations

import pytest

from broker.cluster.moves import Move, find_moves
from broker.world import Address


def at(*hosts: str) -> dict[int, Address]:
    """Return the addresses of brokers 1, 2 and so on; `-` for a broker without one."""
    return {number: Address(host, 9) for number, host in enumerate(hosts, 1) if host != "-"}


REGISTERED = at("a", "b", "c")


@pytest.mark.parametrize(
    ("own_id", "voters", "registered", "configured", "is_moved_alone", "moved", "is_stuck"),
    [
        pytest.param(2, [1, 2, 3], REGISTERED, at("a", "b", "c"), False, [], False, id="none"),
        pytest.param(2, [1, 2, 3], REGISTERED, at("a", "x", "c"), True, [2], False, id="alone"),
        pytest.param(1, [1, 2, 3], REGISTERED, at("a", "x", "c"), False, [2], False, id="another"),
        pytest.param(
            2, [1, 2, 3], REGISTERED, at("x", "y", "z"), False, [1, 2, 3], False, id="all"
        ),
        pytest.param(2, [1, 2, 3], REGISTERED, at("a", "x", "y"), True, [2, 3], True, id="two"),
        pytest.param(
            1, [1, 2, 3], REGISTERED, at("a", "x", "y"), False, [2, 3], True, id="it stays"
        ),
        pytest.param(
            2, [1, 2, 3, 4, 5], at(*"abcde"), at(*"axxde"), True, [2, 3], False, id="two of five"
        ),
        pytest.param(1, [1], at("a"), at("x"), False, [1], False, id="the only voter"),
        pytest.param(2, [1], at("a", "b"), at("a", "x"), True, [], False, id="an observer"),
        pytest.param(
            2, [1, 2, 3], at("a", "-", "c"), at("a", "x", "c"), False, [], False, id="new"
        ),
        pytest.param(2, [1, 2, 3], REGISTERED, at("-", "x", "-"), False, [2], False, id="unnamed"),
        pytest.param(2, [1, 2], at("a", "b"), at("a", "x"), True, [2], True, id="one of two"),
        pytest.param(2, [], {}, at("a", "x"), False, [], False, id="an empty disk"),
    ],
)
def test_the_moves_of_a_disk(
    own_id: int,
    voters: list[int],
    registered: dict[int, Address],
    configured: dict[int, Address],
    is_moved_alone: bool,
    moved: list[int],
    is_stuck: bool,
) -> None:
    moves = find_moves(own_id, voters, registered, configured)
    assert [one.node_id for one in moves.voters] == moved
    assert moves.leaves_no_majority == is_stuck
    if is_moved_alone:
        before, now = str(registered[own_id]), str(configured[own_id])
        assert moves.own == Move(own_id, before, now)
    else:
        assert moves.own is None


def test_a_move_names_both_addresses() -> None:
    assert str(Move(2, "b:9", "x:9")) == "2 (from b:9 to x:9)"

"""A broker decides from addresses whether its disk was moved alone."""

from __future__ import annotations

import pytest

from broker.cluster.moves import AddressBook, MovedBroker, find_moves
from broker.world import Address


def at(*hosts: str) -> dict[int, Address]:
    """Return the addresses of brokers 1, 2 and so on; `-` for a broker without one."""
    return {number: Address(host, 9) for number, host in enumerate(hosts, 1) if host != "-"}


HOME = at("a", "b", "c")


def book_of(registered: dict[int, Address]) -> AddressBook:
    book = AddressBook()
    for node_id, address in registered.items():
        book.register(node_id, address)
    return book


@pytest.mark.parametrize(
    ("voters", "registered", "configured", "alone", "is_stuck"),
    [
        pytest.param([1, 2, 3], HOME, at("a", "b", "c"), [], False, id="none"),
        pytest.param([1, 2, 3], HOME, at("x", "b", "c"), [1], False, id="the first"),
        pytest.param([1, 2, 3], HOME, at("a", "b", "x"), [3], False, id="the last"),
        pytest.param([1, 2, 3], HOME, at("x", "y", "z"), [], False, id="all"),
        pytest.param([1, 2, 3], HOME, at("a", "x", "y"), [2, 3], True, id="two of three"),
        pytest.param([1, 2, 3, 4, 5], at(*"abcde"), at(*"axxde"), [2, 3], False, id="two of five"),
        pytest.param([1], at("a"), at("x"), [], False, id="the only voter"),
        pytest.param([1], at("a", "b"), at("a", "x"), [2], False, id="an observer"),
        pytest.param([1, 2, 3], at("a", "-", "c"), at("a", "x", "c"), [], False, id="new"),
        pytest.param([1, 2, 3], HOME, at("-", "x", "-"), [], False, id="others are not named"),
        pytest.param([1, 2], at("a", "b"), at("a", "x"), [2], True, id="one of two"),
        pytest.param([], {}, at("a", "x"), [], False, id="an empty disk"),
    ],
)
def test_which_disks_were_moved_alone(
    voters: list[int],
    registered: dict[int, Address],
    configured: dict[int, Address],
    alone: list[int],
    is_stuck: bool,
) -> None:
    for own_id in configured:
        moves = find_moves(own_id, voters, book_of(registered), configured)
        assert [one.node_id for one in moves.voters] == [one for one in alone if one in voters]
        assert moves.leaves_no_majority == is_stuck
        assert [one.node_id for one in moves.others] == [
            one
            for one in configured
            if one != own_id and registered.get(one, configured[one]) != configured[one]
        ]
        if own_id in alone:
            before, now = str(registered[own_id]), str(configured[own_id])
            assert moves.own == MovedBroker(own_id, before, now)
        else:
            assert moves.own is None


def moved_alone(book: AddressBook, configured: dict[int, Address]) -> list[int]:
    return [one.node_id for one in find_moves(1, [1, 2, 3], book, configured).voters]


def test_the_first_ones_of_a_whole_cluster_make_the_others_no_strangers() -> None:
    everywhere_else = at("x", "y", "z")
    book = book_of(HOME)
    book.register(1, everywhere_else[1])
    assert moved_alone(book, everywhere_else) == []
    book.register(2, everywhere_else[2])
    assert moved_alone(book, everywhere_else) == []


def test_what_moved_before_the_last_registration_of_a_broker_stays_where_it_is() -> None:
    book = book_of(HOME)
    book.register(1, Address("x", 9))
    book.register(2, HOME[2])
    assert moved_alone(book, at("x", "y", "z")) == [2]


def test_a_restart_of_the_others_is_no_move() -> None:
    book = book_of(HOME)
    for node_id in (1, 3):
        book.register(node_id, HOME[node_id])
    assert moved_alone(book, at("a", "x", "c")) == [2]


def test_a_snapshot_does_not_say_who_moved_first() -> None:
    book = book_of(HOME)
    book.register(1, Address("x", 9))
    book.end_snapshot()
    assert moved_alone(book, at("x", "y", "z")) == [2, 3]


def test_a_broker_that_left_is_nowhere() -> None:
    book = book_of(HOME)
    book.unregister(1)
    book.unregister(3)
    assert moved_alone(book, at("a", "x", "c")) == []


def test_a_move_names_both_addresses() -> None:
    assert str(MovedBroker(2, "b:9", "x:9")) == "2 (from b:9 to x:9)"

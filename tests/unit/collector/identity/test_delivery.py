"""The safe position advances only at a commit, and only to the position at the last `cut` before
it."""

from collector.identity.delivery import Delivery
from collector.text.fingerprint import Evidence


def test_a_commit_covers_what_was_handed_out_before_its_cut() -> None:
    start = Evidence()
    delivery = Delivery(start)
    first = start.advance(b"a\n")
    delivery.send(first, 1)
    delivery.cut()
    second = first.advance(b"b\nc\n")
    delivery.send(second, 2)
    assert (delivery.safe.position, delivery.lines) == (0, 0)
    delivery.committed()
    assert (delivery.safe.position, delivery.lines) == (2, 1)
    assert not delivery.is_settled
    delivery.cut()
    delivery.committed()
    assert (delivery.safe.position, delivery.lines) == (6, 3)
    assert delivery.is_settled


def test_an_abort_leaves_the_safe_position_where_it_was() -> None:
    delivery = Delivery(Evidence(), lines=7)
    delivery.send(Evidence().advance(b"a\n"), 1)
    delivery.cut()
    delivery.given_up()
    delivery.committed()
    assert (delivery.safe.position, delivery.lines) == (0, 7)
    assert not delivery.is_settled

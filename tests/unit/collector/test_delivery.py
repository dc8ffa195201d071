"""The safe position moves over acknowledged spans only, without gaps."""

import pytest

from collector.delivery import Delivery
from collector.fingerprint import Evidence


def test_a_later_span_waits_for_an_earlier_one() -> None:
    start = Evidence()
    delivery = Delivery(start)
    first = delivery.send(start.advance(b"a\n"), 1)
    second = delivery.send(first.evidence.advance(b"b\nc\n"), 2)
    assert not delivery.acknowledge(second)
    assert (delivery.safe.position, delivery.lines, delivery.outstanding) == (0, 0, 2)
    assert delivery.acknowledge(first)
    assert (delivery.safe.position, delivery.lines, delivery.outstanding) == (6, 3, 0)


def test_a_span_cut_in_parts_needs_all_of_them() -> None:
    delivery = Delivery(Evidence())
    span = delivery.send(Evidence().advance(b"a\nb\n"), 2)
    span.parts_open += 1
    assert not delivery.acknowledge(span)
    assert delivery.acknowledge(span)
    with pytest.raises(AssertionError):
        delivery.acknowledge(span)

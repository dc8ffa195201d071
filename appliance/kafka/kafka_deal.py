"""Assigns replicas to brokers in the same way as Kafka's `kafka-reassign-partitions --generate`.

This module is pure. Kafka assigns all partitions without regard to their present replicas, so
nearly all replicas move. Only our `kafka-reassign-partitions` uses this module, so that its output
can be compared with Kafka's. The caller draws `start` and `shift` at random, as Kafka does.
"""

from collections.abc import Mapping, Sequence


def deal(
    brokers: Sequence[int],
    count: int,
    factor: int,
    *,
    start: int,
    shift: int,
    racks: Mapping[int, str] | None = None,
) -> list[list[int]]:
    """Return the replicas of each partition. With `racks`, replicas are on different racks.

    Raises ValueError if there are fewer brokers than replicas.
    """
    if factor > len(brokers):
        raise ValueError(
            f"Replication factor: {factor} larger than available brokers: {len(brokers)}."
        )
    ring = list(brokers) if racks is None else alternated({one: racks[one] for one in brokers})
    dealt = []
    for number in range(count):
        if number > 0 and number % len(ring) == 0:
            shift += 1
        first = (number + start) % len(ring)
        if racks is None:
            others = [ring[_place(first, shift, step, len(ring))] for step in range(factor - 1)]
            dealt.append([ring[first], *others])
        else:
            dealt.append(_on_racks(ring, racks, first, shift, factor))
    return dealt


def alternated(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in an order in which neighbours are on different racks, as far as
    possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, rows), default=0)
    return [row[place] for place in range(longest) for row in rows if place < len(row)]


def _on_racks(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, factor: int
) -> list[int]:
    rack_count = len({racks[one] for one in ring})
    replicas = [ring[first]]
    step = 0
    while len(replicas) < factor:
        broker = ring[_place(first, shift * rack_count, step, len(ring))]
        used = {racks[one] for one in replicas}
        if broker not in replicas and (racks[broker] not in used or len(used) == rack_count):
            replicas.append(broker)
        step += 1
    return replicas


def _place(first: int, shift: int, step: int, count: int) -> int:
    return (first + 1 + (shift + step) % (count - 1)) % count

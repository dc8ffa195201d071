"""Measures the kinds of rules about changes of the cluster.

This module is pure. While the brokers do not answer, all these values are unknown, so open alerts
stay open.
"""

from collections.abc import Iterable

from monitor.state.alert import Observed, Rule
from monitor.state.moves import MoveView, by_topic
from monitor.state.placement import doubled_racks
from monitor.state.snapshot import Snapshot
from monitor.views import changes
from monitor.views.changes import Advice

PAGE = "/brokers"


def _is_known(snapshot: Snapshot) -> bool:
    return snapshot.kafka_at_ms is not None and snapshot.kafka_at_ms == snapshot.taken_at_ms


def _flags(found: Iterable[Advice]) -> list[Observed]:
    """Return one breach for each advice.

    A subject without advice is missing in the result, which closes its alert.
    """
    return [Observed(one.subject, 1.0, one.text, PAGE) for one in found]


def move_stands(rule: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return for each topic how long its reassignments have not advanced."""
    if not _is_known(snapshot):
        return None
    topics = by_topic(snapshot.moves)
    return [_still(rule, topic, moves, snapshot) for topic, moves in topics.items()]


def _still(rule: Rule, topic: str, moves: list[MoveView], snapshot: Snapshot) -> Observed:
    times = {one.name: changes.still_ms(one, snapshot.taken_at_ms) for one in moves}
    known = [one for one in times.values() if one is not None]
    standing = [
        one for one in moves if (ms := times[one.name]) is not None and rule.breached_by(ms)
    ]
    text = changes.standing_text(standing)
    return Observed(topic, max(known) if known else None, text, f"/topics/{topic}")


def no_room_to_copy(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return for each broker whether copies to it pause because its disk is nearly full."""
    if not _is_known(snapshot):
        return None
    found = []
    for broker in snapshot.brokers:
        has_none = broker.facts.is_out_of_room
        advice = changes.no_room(broker)
        value = None if has_none is None else float(has_none)
        found.append(Observed(advice.subject, value, advice.text if has_none else "", PAGE))
    return found


def throttle_left(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return the brokers and topics whose throttle limits nothing any more."""
    return _flags(changes.throttles_left(snapshot)) if _is_known(snapshot) else None


def racks_doubled(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return the topics with partitions that have two replicas in one rack without need."""
    if not _is_known(snapshot):
        return None
    return _flags(changes.racks_doubled(*one) for one in doubled_racks(snapshot).items())


def two_voters(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return whether the quorum has two voters."""
    count = changes.voter_count(snapshot) if _is_known(snapshot) else None
    if count is None:
        return None
    advice = changes.two_voters()
    return [Observed(advice.subject, float(count == 2), advice.text, PAGE)]


def level_not_finalised(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return for how long all brokers have supported a later level than the cluster's, in ms."""
    if not _is_known(snapshot):
        return None
    levels = changes.level_behind(snapshot)
    text = "" if levels is None else changes.level_not_finalised(*levels).text
    return [Observed("cluster", changes.behind_ms(snapshot), text, PAGE)]

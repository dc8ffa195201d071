"""The sticky assignment: as even as possible, and with as few moves as possible.

This module is pure. The rules (KIP-54, KIP-429):

- A member keeps its partitions, unless another member claims one from a later generation, the
  member does not want the topic any more, or another member would have two partitions fewer than
  possible.
- If all members want the same topics, their counts differ by at most one.
- The result depends only on the members and what they own, not on their order.
"""

from collections.abc import Mapping, Sequence

from protocol.client.assignment import NO_GENERATION, Assignment, MemberSubscription
from protocol.types import TopicPartition


def assign_sticky(
    members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Return the partitions of each member."""
    ordered = sorted(members, key=lambda member: member.order)
    topics = sorted({topic for member in members for topic in member.topics})
    partitions = [
        TopicPartition(topic, index)
        for topic in topics
        for index in range(partition_counts.get(topic, 0))
    ]
    kept = _kept(ordered, frozenset(partitions))
    if len({frozenset(member.topics) for member in members}) <= 1:
        return _even(ordered, partitions, kept)
    return _balanced(ordered, partitions, kept)


def withhold_moving(members: Sequence[MemberSubscription], assignment: Assignment) -> Assignment:
    """Remove partitions that another member still owns. The next rebalance assigns them."""
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for tp in member.owned:
            owners.setdefault(tp, set()).add(member.member_id)
    none: set[str] = set()
    return {
        member_id: [tp for tp in tps if not owners.get(tp, none) - {member_id}]
        for member_id, tps in assignment.items()
    }


def _kept(
    ordered: Sequence[MemberSubscription], existing: frozenset[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that each member can keep. Of two claims, the later generation wins.

    Two claims with the same generation contradict each other (both members lost contact), so
    neither is valid.
    """
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in ordered:
        wanted = frozenset(member.topics)
        for tp in member.owned:
            if tp not in existing or tp.topic not in wanted:
                continue
            generation_id = max(member.generation_id, NO_GENERATION)
            rival = claims.get(tp)
            if rival is None or generation_id > rival[0]:
                claims[tp] = (generation_id, member.member_id)
            elif generation_id == rival[0]:
                claims[tp] = (generation_id, None)
    kept: dict[str, list[TopicPartition]] = {member.member_id: [] for member in ordered}
    for tp in sorted(claims):
        _, member_id = claims[tp]
        if member_id is not None:
            kept[member_id].append(tp)
    return kept


def _even(
    ordered: Sequence[MemberSubscription],
    partitions: Sequence[TopicPartition],
    kept: Mapping[str, list[TopicPartition]],
) -> Assignment:
    """Assign if all members want the same topics.

    Members with more than their share give some back.
    """
    if not ordered:
        return {}
    least, extra = divmod(len(partitions), len(ordered))
    assignment: Assignment = {}
    # The members that own the most partitions get one extra partition.
    by_owned = sorted(ordered, key=lambda member: -len(kept[member.member_id]))
    share = {member.member_id: least + (index < extra) for index, member in enumerate(by_owned)}
    for member in ordered:
        assignment[member.member_id] = kept[member.member_id][: share[member.member_id]]
    taken = {tp for tps in assignment.values() for tp in tps}
    free = iter([tp for tp in partitions if tp not in taken])
    # Give one partition to each member in turn, so that every member gets partitions of every topic
    # if possible.
    open_ids = [m.member_id for m in ordered if len(assignment[m.member_id]) < share[m.member_id]]
    while open_ids:
        for member_id in open_ids:
            assignment[member_id].append(next(free))
        open_ids = [id_ for id_ in open_ids if len(assignment[id_]) < share[id_]]
    return assignment


def _balanced(
    ordered: Sequence[MemberSubscription],
    partitions: Sequence[TopicPartition],
    kept: Mapping[str, list[TopicPartition]],
) -> Assignment:
    """Assign if members want different topics: distribute all partitions, then even out by single
    moves."""
    assignment: Assignment = {id_: list(tps) for id_, tps in kept.items()}
    subscribers: dict[str, list[str]] = {}
    for member in ordered:
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    taken = {tp for tps in assignment.values() for tp in tps}
    free = [tp for tp in partitions if tp not in taken]
    # Assign partitions first that only few members can have, while many members have room.
    free.sort(key=lambda tp: (len(subscribers[tp.topic]), tp))
    for tp in free:
        least = min(subscribers[tp.topic], key=lambda id_: len(assignment[id_]))
        assignment[least].append(tp)
    rank = {member.member_id: index for index, member in enumerate(ordered)}
    while _move_one(assignment, subscribers, kept, rank):
        pass
    return assignment


def _move_one(
    assignment: Assignment,
    subscribers: Mapping[str, list[str]],
    kept: Mapping[str, list[TopicPartition]],
    rank: Mapping[str, int],
) -> bool:
    """Move one partition to a member with at least two fewer. Return False if that is impossible.

    Each move lowers the sum of the squares of all counts, so the moves end.
    """
    least = {
        topic: min(ids, key=lambda id_: (len(assignment[id_]), rank[id_]))
        for topic, ids in subscribers.items()
    }
    for giver in sorted(assignment, key=lambda id_: (-len(assignment[id_]), rank[id_])):
        load = len(assignment[giver])
        owned = frozenset(kept[giver])
        # Move a partition to the least loaded member, and preferably a partition that its present
        # owner got in this rebalance.
        choices = [
            (len(assignment[least[tp.topic]]), tp in owned, tp)
            for tp in assignment[giver]
            if load - len(assignment[least[tp.topic]]) >= 2
        ]
        if choices:
            *_, tp = min(choices)
            assignment[giver].remove(tp)
            assignment[least[tp.topic]].append(tp)
            return True
    return False

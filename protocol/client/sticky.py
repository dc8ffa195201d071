"""The sticky assignment: as even as it can be, and within that as little moved as can be.

Floor: client. Pure. The rules (KIP-54, KIP-429):

- What a member owned it keeps, unless another claims it from a later generation, it no longer
  wants the topic, or keeping it would leave somebody with two partitions less than it could have.
- Where all want the same, nobody has more than one partition more than another.
- The outcome depends on the members and what they own alone, not on the order they come in.
"""

from collections.abc import Mapping, Sequence

from protocol.client.assignment import NO_GENERATION, Assignment, MemberSubscription
from protocol.types import TopicPartition


def assign_sticky(
    members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """The partitions of each member."""
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
    """Take out what another member still says it owns: it comes with the rebalance that follows."""
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for tp in member.owned:
            owners.setdefault(tp, set()).add(member.member_id)
    nobody: set[str] = set()
    return {
        member_id: [tp for tp in tps if not owners.get(tp, nobody) - {member_id}]
        for member_id, tps in assignment.items()
    }


def _kept(
    ordered: Sequence[MemberSubscription], existing: frozenset[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """What each member may go on owning; of two claims the later generation's counts.

    Two claims of one generation contradict each other (both members lost touch): neither counts.
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
    """All want the same: everybody gets its share, who owned more than that gives some back."""
    if not ordered:
        return {}
    least, extra = divmod(len(partitions), len(ordered))
    assignment: Assignment = {}
    # Those who own most come first when it is said who may have one more than the others.
    by_owned = sorted(ordered, key=lambda member: -len(kept[member.member_id]))
    share = {member.member_id: least + (index < extra) for index, member in enumerate(by_owned)}
    for member in ordered:
        assignment[member.member_id] = kept[member.member_id][: share[member.member_id]]
    taken = {tp for tps in assignment.values() for tp in tps}
    free = iter([tp for tp in partitions if tp not in taken])
    # One each in turn, so that every member gets something of every topic if it can.
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
    """Members want different topics: fill up from what is kept, then even out by single moves."""
    assignment: Assignment = {id_: list(tps) for id_, tps in kept.items()}
    subscribers: dict[str, list[str]] = {}
    for member in ordered:
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    taken = {tp for tps in assignment.values() for tp in tps}
    free = [tp for tp in partitions if tp not in taken]
    # What few members can have goes first, while there is still a choice for the rest.
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
    """Give one partition of a member to one that has at least two less; False if none can be.

    Each move lowers the sum of the squares of all counts, so there is a last one.
    """
    least = {
        topic: min(ids, key=lambda id_: (len(assignment[id_]), rank[id_]))
        for topic, ids in subscribers.items()
    }
    for giver in sorted(assignment, key=lambda id_: (-len(assignment[id_]), rank[id_])):
        load = len(assignment[giver])
        owned = frozenset(kept[giver])
        # To the least loaded taker, and rather what the giver has not owned for long.
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

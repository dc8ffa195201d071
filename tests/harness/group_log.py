"""The records of a group in the offsets topic, read over the network, and their invariants.

The log is the only evidence that all members share. It has each generation with all its
assignments, and every commit, in order. In addition each member reports the assignment that it got,
because a broker could store one assignment and send another.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinators.group_records import (
    GroupMetadataValue,
    decode_group_key,
    decode_group_value,
    decode_offset_key,
    decode_offset_value,
)
from broker.coordinators.placing import shard_of
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.types import TopicPartition
from protocol.wire.primitives import Buffer
from protocol.wire.records import iterate_batches, iterate_records
from tests.harness.wire import WireClient

OFFSETS_TOPIC = "__consumer_offsets"
SHARD_COUNT = 6


class Committed(NamedTuple):
    """One commit. None means a tombstone."""

    partition: TopicPartition
    offset: int | None


class Given(NamedTuple):
    """An assignment as reported by the member that got it."""

    member_id: str
    generation: int
    partitions: frozenset[int]


def group_log(bootstrap: str, group_id: str) -> list[GroupMetadataValue | Committed]:
    """Return every generation and commit of a group, oldest first."""
    found: list[GroupMetadataValue | Committed] = []
    with WireClient(bootstrap) as client:
        for key, value in _records(client, shard_of(group_id, SHARD_COUNT)):
            name = decode_offset_key(key)
            if name is not None and name.group == group_id:
                offset = None if value is None else decode_offset_value(value).offset
                found.append(Committed(TopicPartition(name.topic, name.partition), offset))
            elif decode_group_key(key) == group_id and value is not None:
                found.append(decode_group_value(value))
    return found


def _records(client: WireClient, index: int) -> Iterator[tuple[Buffer, Buffer | None]]:
    offset = 0
    while True:
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=8 << 20,
            topics=[FetchTopic(topic=OFFSETS_TOPIC, partitions=[asked])],
        )
        answer = client.ask(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        if not answer.records:
            return
        for header, batch in iterate_batches(answer.records):
            offset = header.last_offset + 1
            if not header.is_control:
                for record in iterate_records(batch):
                    if record.key is not None:
                        yield record.key, record.value


def assigned_partitions(assignment: Buffer) -> list[tuple[str, int]]:
    """Return the partitions of a consumer's assignment, in any version."""
    data, found = bytes(assignment), []
    if not data:
        return []
    position, topic_count = 6, int.from_bytes(data[2:6], "big")
    for _ in range(topic_count):
        size = int.from_bytes(data[position : position + 2], "big")
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        count = int.from_bytes(data[position : position + 4], "big")
        for step in range(count):
            at = position + 4 + 4 * step
            found.append((topic, int.from_bytes(data[at : at + 4], "big")))
        position += 4 + 4 * count
    return found


class CheckedCounts(NamedTuple):
    """The number of checked items, so that a test can see that there were some."""

    generations: int
    commits: int


def check_group_log(log: list[GroupMetadataValue | Committed]) -> CheckedCounts:
    """Check that generations rise, that each partition has one owner per generation, and that no
    committed offset goes back."""
    generation = commits = generations = 0
    offsets: dict[TopicPartition, int] = {}
    for event in log:
        if isinstance(event, Committed):
            commits += 1
            if event.offset is None:
                offsets.pop(event.partition, None)
                continue
            before = offsets.get(event.partition, 0)
            assert event.offset >= before, f"{event.partition} goes back from {before} to {event}"
            offsets[event.partition] = event.offset
            continue
        generations += event.generation > generation
        assert event.generation >= generation, f"{event.generation} after {generation}"
        generation = event.generation
        owned = [one for member in event.members for one in assigned_partitions(member.assignment)]
        assert len(owned) == len(set(owned)), f"owned twice in generation {generation}: {owned}"
        assert event.leader is None or event.leader in {one.member_id for one in event.members}
    return CheckedCounts(generations, commits)


def check_given(given: list[Given], log: list[GroupMetadataValue | Committed]) -> int:
    """Check that every reported assignment was stored, and that no partition was assigned twice in
    a generation. Return the number of assignments checked.

    The assignments must be for one topic, and of a protocol that sends whole assignments. Reports
    with generation -1 are skipped: their member had left the group before it could read its
    generation.
    """
    stored: dict[tuple[int, str], set[frozenset[int]]] = {}
    for event in log:
        if not isinstance(event, Committed):
            for member in event.members:
                share = frozenset(index for _, index in assigned_partitions(member.assignment))
                stored.setdefault((event.generation, member.member_id), set()).add(share)
    owners: dict[tuple[int, int], str] = {}
    seen = [one for one in given if one.generation >= 0]
    for one in seen:
        shares = stored.get((one.generation, one.member_id), set())
        assert one.partitions in shares, f"{one} is not what was stored: {shares}"
        for partition in one.partitions:
            owner = owners.setdefault((one.generation, partition), one.member_id)
            assert owner == one.member_id, f"{partition} was given to {owner} too: {one}"
    return len(seen)

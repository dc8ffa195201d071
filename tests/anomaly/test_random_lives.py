"""Random histories of a log: producers, transactions, compaction, retention, damage and crashes.

A model remembers every batch by its offset. After each crash the log must equal the model: no
synced record is lost, moved or invented. Sequences, open transactions and aborted transactions must
follow from the batches. Reopening the log must change nothing. Derived files (indexes, transaction
indexes, snapshots) can be damaged or removed before a start.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from broker.storage.log_cleaning import adopt_cleaned, plan_cleaning
from broker.storage.markers import marker_of
from broker.storage.producer_state import BATCHES_KEPT
from broker.storage.txn_index import AbortedRange
from protocol.wire.records import iterate_records, read_header
from tests.harness.seed import seeded
from tests.unit.storage.kit import EVERYTHING, NOW, Node, batch, batches_of, retain

SETTINGS = {"log.index.interval.bytes": 200}
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "900",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "5000",
    "file.delete.delay.ms": "0",
}
DELETE = {"segment.bytes": "900", "retention.bytes": "6000", "file.delete.delay.ms": "0"}
PLAIN, TRANSACTIONAL = (1, 2, 3), (11, 12)
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass
class Entry:
    """One batch as it was written. A marker has no records."""

    base_offset: int
    producer: int
    sequence: int
    keys: list[bytes]
    values: list[bytes | None]
    is_transactional: bool
    is_commit: bool | None = None

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(len(self.values), 1) - 1


@dataclass
class Model:
    """Every batch that was written and not lost by a power cut."""

    entries: list[Entry] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].last_offset + 1 if self.entries else 0

    def cut(self, end_offset: int) -> None:
        while self.entries and self.entries[-1].base_offset >= end_offset:
            self.entries.pop()

    def next_sequence(self, producer: int) -> int:
        return sum(len(one.values) for one in self.entries if one.producer == producer)

    def transactions(self) -> tuple[dict[int, int], list[AbortedRange], set[int]]:
        """Return the first offset of each producer's open transaction, the aborted transactions,
        and the offsets of aborted batches."""
        opened: dict[int, list[Entry]] = {}
        aborted: list[AbortedRange] = []
        lost: set[int] = set()
        for one in self.entries:
            if one.is_commit is None and one.is_transactional:
                opened.setdefault(one.producer, []).append(one)
            elif one.is_commit is not None:
                batches = opened.pop(one.producer, [])
                if batches and not one.is_commit:
                    aborted.append(AbortedRange(one.producer, batches[0].base_offset))
                    lost.update(entry.base_offset for entry in batches)
        first_offsets = {producer: batches[0].base_offset for producer, batches in opened.items()}
        return first_offsets, sorted(aborted, key=lambda one: one.first_offset), lost

    def table(self, lost: set[int], start_offset: int) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = {}
        for one in self.entries:
            if one.base_offset not in lost and one.last_offset >= start_offset:
                found.update(zip(one.keys, one.values, strict=True))
        return {key: value for key, value in found.items() if value is not None}

    def record(self, offset: int) -> tuple[bytes, bytes | None]:
        for one in self.entries:
            if one.values and one.base_offset <= offset <= one.last_offset:
                index = offset - one.base_offset
                return one.keys[index], one.values[index]
        raise AssertionError(f"nothing was written at {offset}")


class Life:
    """One log, its model, and the random events that happen to both."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.is_compacted = chance.random() < 0.6
        self.now_ms = NOW
        self.node = Node(SETTINGS, topic=COMPACT if self.is_compacted else DELETE)
        self.model = Model()
        self.written = 0
        self.was_damaged = False

    def write(self) -> None:
        chance = self.chance
        producer = chance.choice((*PLAIN, *TRANSACTIONAL, -1))
        count = chance.randint(1, 3)
        keys = [b"k%d" % chance.randint(0, 9) for _ in range(count)]
        values: list[bytes | None] = []
        for _ in range(count):
            self.written += 1
            is_tombstone = self.is_compacted and chance.random() < 0.1
            values.append(None if is_tombstone else b"%05d" % self.written * chance.randint(1, 12))
        sequence = self.model.next_sequence(producer) if producer >= 0 else -1
        view = batch(
            *values,
            keys=keys,
            producer=(producer, 0 if producer >= 0 else -1, sequence),
            is_transactional=producer in TRANSACTIONAL,
            codec=chance.choice((0, 0, 1, 3)),
        )
        (done,) = self.node.put(view, now_ms=self.now_ms)
        assert done.base_offset == self.model.end_offset
        is_transactional = producer in TRANSACTIONAL
        self.model.entries.append(
            Entry(done.base_offset, producer, sequence, keys, values, is_transactional)
        )

    def end(self) -> None:
        """End a transaction, mostly of a producer that has an open one."""
        opened, _, _ = self.model.transactions()
        producer = self.chance.choice(list(opened) or list(TRANSACTIONAL))
        is_commit = self.chance.random() < 0.5
        done = self.node.log.append_marker(producer, 0, is_commit, 0, 0, self.now_ms)
        self.node.log.write_staged(self.now_ms)
        assert done.base_offset == self.model.end_offset
        self.model.entries.append(Entry(done.base_offset, producer, -1, [], [], True, is_commit))

    def repeat(self) -> None:
        """Check that the log recognises a retry of a producer's last batch."""
        found = [one for one in self.model.entries if one.producer in PLAIN]
        # If a producer's batches are deleted, only snapshots keep its sequences, and damage can
        # have removed these. So retry only a batch that the log still has.
        if self.was_damaged:
            kept = self.node.log.segments.start_offset
            found = [one for one in found if one.base_offset >= kept]
        if found:
            one = found[-1]
            view = batch(*one.values, keys=one.keys, producer=(one.producer, 0, one.sequence))
            (done,) = self.node.put(view, now_ms=self.now_ms)
            assert (done.is_duplicate, done.base_offset) == (True, one.base_offset)

    def clean(self) -> None:
        unsynced = [
            one.producer
            for one in self.model.entries
            if one.base_offset >= self.node.log.recovery_point
        ]
        if any(unsynced.count(producer) >= BATCHES_KEPT for producer in unsynced):
            # A compaction must keep the batches that prove a producer's sequence, even if
            # everything unsynced is lost. The log remembers BATCHES_KEPT batches per producer. So
            # flush if as many batches of a producer are unsynced.
            self.node.flush()
        self.now_ms += self.chance.randint(0, 3000)
        job = plan_cleaning(self.node.log, self.now_ms, self.chance.choice((1200, 1 << 20)))
        if job is None:
            return
        while not self.node.manager.clean(self.node.log, job):
            if self.chance.random() < 0.05:
                # The process dies in the middle of the compaction.
                self.die()
                return
        if self.chance.random() < 0.1:
            self.die()
            return
        dropped = adopt_cleaned(self.node.log, job, self.now_ms)
        if self.chance.random() < 0.8:
            dropped.perform()

    def retain(self) -> None:
        dropped = retain(self.node, self.now_ms)
        if dropped is not None and self.chance.random() < 0.8:
            dropped.perform()

    def delete_records(self) -> None:
        log = self.node.log
        if not self.is_compacted and log.high_watermark > log.log_start_offset:
            log.advance_log_start(self.chance.randint(log.log_start_offset, log.high_watermark))
            self.node.manager.checkpoint().perform()

    def step(self) -> None:
        acts = (
            (self.write, 40),
            (self.end, 8),
            (self.repeat, 4),
            (self.node.flush, 10),
            (lambda: self.node.manager.checkpoint().perform(), 2),
            (lambda: self.node.manager.checkpoint_points().perform(), 3),
            (self.clean if self.is_compacted else self.retain, 4),
            (self.delete_records, 1),
            (self.die, 2),
        )
        act = self.chance.choices([one for one, _ in acts], [weight for _, weight in acts])[0]
        act()

    def die(self) -> None:
        chance, node, model = self.chance, self.node, self.model
        synced = node.log.recovery_point
        kind = chance.choice(("clean", "kill", "power", "power"))
        if kind == "clean":
            node.manager.close_clean()
        elif kind == "power":
            node.sim.crash(chance)
        if chance.random() < 0.3:
            self.was_damaged = True
            self.damage()
        report = node.reopen(self.now_ms)
        assert report.offline == {}, report
        end_offset = node.log.log_end_offset
        assert end_offset >= synced
        if kind != "power":
            assert (end_offset, report.truncated) == (model.end_offset, [])
        model.cut(end_offset)
        assert model.end_offset == end_offset
        self.check()
        before, producers = self.told(), self.sequences()
        assert node.reopen(self.now_ms).truncated == []
        self.check()
        assert self.told() == before
        # If a producer's batches are deleted, only snapshots keep its sequences. After damage the
        # snapshots may disagree, because a later snapshot lacks the sequences of a damaged one.
        known = {(one, sequence) for one, sequence in producers.items() if sequence >= 0}
        assert self.was_damaged or known <= set(self.sequences().items())

    def sequences(self) -> dict[int, int]:
        return {one.producer_id: one.last_sequence for one in self.node.log.producer_state.active()}

    def damage(self) -> None:
        """Damage or remove files that are derived from the batches."""
        names = [name for name in self.node.names() if name.endswith(DERIVED)]
        for name in names:
            content = self.node.sim.contents(self.node.path(name))
            if self.chance.random() < 0.5 or not content:
                continue
            if name.endswith(".txnindex"):
                # A transaction index has no checksum, so only an impossible size shows that it is
                # damaged.
                del content[-1:]
            elif self.chance.random() < 0.5:
                self.node.disk.unlink(self.node.path(name))
            else:
                del content[len(content) // 2 :]
                content.extend(b"\x7f" * self.chance.randint(0, 3))

    def told(self) -> tuple[object, ...]:
        log = self.node.log
        log.advance_high_watermark(EVERYTHING)
        return (
            log.log_start_offset,
            log.log_end_offset,
            self.committed(),
            batches_of(log),
        )

    def committed(self) -> dict[bytes, bytes | None]:
        """Return the records that a read_committed consumer keeps. Like a consumer, use only the
        batches and the list of aborted transactions."""
        log = self.node.log
        coming = log.aborted_transactions(log.log_start_offset, EVERYTHING)
        skipped: set[int] = set()
        found: dict[bytes, bytes | None] = {}
        for one in batches_of(log):
            header = read_header(one)
            while coming and coming[0].first_offset <= header.last_offset:
                skipped.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = marker_of(one)
                if marker is not None and not marker.is_commit:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped or not header.is_transactional:
                for record in iterate_records(one):
                    found[record.key or b""] = record.value
        return found

    def check(self) -> None:
        log, model = self.node.log, self.model
        log.advance_high_watermark(EVERYTHING)
        opened, aborted, lost = model.transactions()
        self.check_stable(opened)
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        for one in batches_of(log):
            header = read_header(one)
            for record in () if header.is_control else iterate_records(one):
                assert record.offset not in found
                found[record.offset] = record.key, record.value
                assert model.record(record.offset) == (record.key, record.value)
        committed = {key: value for key, value in self.committed().items() if value is not None}
        assert committed == model.table(lost, log.log_start_offset)
        if not self.is_compacted:
            assert {offset for offset in found if offset >= log.log_start_offset} == {
                offset
                for one in model.entries
                for offset in range(one.base_offset, one.base_offset + len(one.values))
                if offset >= log.log_start_offset
            }
            listed = log.aborted_transactions(0, EVERYTHING)
            start = log.segments.start_offset
            assert {one for one in aborted if one.first_offset >= start} <= set(listed)
        self.check_producers()

    def check_stable(self, opened: dict[int, int]) -> None:
        log, start = self.node.log, self.node.log.segments.start_offset
        # Retention may have deleted the first batches of a transaction, and their records with
        # them. So both first offsets are allowed: the original one and the first remaining one.
        left = {
            producer: min(
                one.base_offset
                for one in self.model.entries
                if one.producer == producer and one.base_offset >= max(first_offset, start)
            )
            for producer, first_offset in opened.items()
            if any(
                one.producer == producer and one.base_offset >= max(first_offset, start)
                for one in self.model.entries
            )
        }
        expected = {min(one.values(), default=log.log_end_offset) for one in (opened, left)}
        assert log.last_stable_offset in {max(one, log.log_start_offset) for one in expected}

    def check_producers(self) -> None:
        known = self.sequences()
        kept = self.node.log.segments.start_offset
        for producer in (*PLAIN, *TRANSACTIONAL):
            mine = [one for one in self.model.entries if one.producer == producer and one.values]
            if mine and mine[-1].base_offset >= kept:
                assert known[producer] == mine[-1].sequence + len(mine[-1].values) - 1


def live(chance: random.Random, steps: int) -> None:
    life = Life(chance)
    for _ in range(steps):
        life.step()
    life.node.flush()
    life.die()


def test_random_lives() -> None:
    chance = seeded("random lives")
    for _ in range(25):
        live(chance, 150)


@pytest.mark.slow
def test_many_more_random_lives() -> None:
    chance = seeded("many more random lives")
    for _ in range(1_000):
        live(chance, 200)

"""A collector on a real folder with an in-memory broker, which keeps the sent lines and the stored
positions."""

import itertools
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from collector.config.input_section import DEAD_LETTERS_TOPIC, LINE_BYTES_MIN, InputSection
from collector.config.settings import DRAIN_QUIET_MS
from collector.feeder import Feeder
from collector.identity.checkpoints import decode, decode_key
from collector.identity.discovery import is_matched, plan
from collector.identity.files import Walker
from collector.identity.generation import Generation
from collector.identity.handles import Handles
from collector.identity.registry import Registry
from collector.identity.sightings import State
from collector.read.in_place import HOLE_QUIET_MS
from collector.read.reader import Reader
from collector.send.addresses import Addresses
from collector.send.lag_windows import ReadProgress
from collector.send.outbox import SendBatch, SendQueues
from collector.send.positions import Positions
from collector.text.encode import Header
from collector.timing.rhythm import Rhythm
from protocol.types import TopicPartition
from tests.unit.collector.blocks import records_of

BATCH_LIMIT = 1 << 20
LOOK_MS = 100
LOOKS_MAX = DRAIN_QUIET_MS // LOOK_MS + 10
"""The most scans of one `look`. The collector requests scans until a deleted file has not changed
for DRAIN_QUIET_MS."""
EVENT_ROUNDS = 8
"""The most rounds of LOOK_MS in `age`. An event can wait for an event of the file before, and so
on."""
INSTANCE = "i"
HOST = "a-host"
GLOBS = ("a*", "b*", "cur")
FORGET_AFTER_MS = 7 * 86_400_000


# Every line that ends with an odd digit continues the event before it. So each scenario also tests
# events.
EVENTS: dict[str, Any] = {"multiline": {"continue": "[13579]$", "max_age": "100ms"}}


class World:
    """A collector that reads the globs `a* b* cur` of one folder by default, as the scenarios
    demand.

    In the list of scenarios, `W n f` is `write(n, f)`, LOOK is `look()`, and DOWN and UP are
    `down()` and `up()`.
    """

    def __init__(
        self,
        folder: Path,
        globs: Sequence[str] = GLOBS,
        *,
        name: str | None = None,
        **keys: object,
    ):
        """`name` is the name in the header of each record; `keys` are those of the input."""
        self.folder = folder
        section = {"paths": [f"{folder}/{glob}" for glob in globs], "topic": "t"}
        self.made: set[str] = {DEAD_LETTERS_TOPIC}
        self.inputs = [InputSection.model_validate(section | keys)]
        self.now_ms = 1_000_000
        self.sent: list[tuple[str, bytes]] = []  # topic and value, in order
        self.records: list[tuple[str, bytes]] = []
        self.has_events = self.inputs[0].multiline is not None
        self.keys: list[bytes | None] = []
        self.headers: list[tuple[Header, ...]] = []
        self.owners: list[str] = []  # the generation that each record is from
        self.stored: dict[str, bytes] = {}
        self.sending: list[SendBatch] = []  # the batches of the open transaction
        self.limit = BATCH_LIMIT
        self.limits: dict[str, int] = {}
        self.open_files = 64
        self.addresses = Addresses(HOST, name)
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self.up()

    # --- the folder ---------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return self.folder / name

    def new_lines(self, count: int) -> bytes:
        return b"".join(b"%099d\n" % next(self._numbers) for _ in range(count))

    def write(self, count: int, name: str) -> bytes:
        """Append numbered lines of 100 bytes."""
        data = self.new_lines(count)
        self.append(name, data)
        return data

    def append(self, name: str, data: bytes) -> None:
        with self.path(name).open("ab") as out:
            out.write(data)

    # --- the collector ------------------------------------------------------------------------

    def up(self) -> None:
        self.registry = Registry(self.inputs, str(self.folder), lambda: f"g{next(self._names)}")
        self.registry.restore(decode(name, value) for name, value in self.stored.items())
        self.handles = Handles(self.open_files)
        reader = Reader(self.registry, self.handles, self._line_limit, self.addresses.fields_of)
        self._new_feeder(reader)
        self.positions = Positions(self.registry, INSTANCE, FORGET_AFTER_MS)
        self.walker = Walker(plan(self.inputs, str(self.folder)))

    def change(self, *sections: dict[str, object]) -> None:
        """Change the inputs of the running collector."""
        self.inputs = [InputSection.model_validate(section) for section in sections]
        patterns = plan(self.inputs, str(self.folder))
        self.walker = Walker(patterns)
        reader = self.feeder.reader
        self.registry.change_inputs(self.inputs)
        for left in self.registry.leave_unmatched(partial(is_matched, patterns), self.now_ms):
            reader.close(left)

    def _new_feeder(self, reader: Reader) -> None:
        self.feeder = Feeder(
            reader,
            SendQueues(lambda topic: self.limits.get(topic, self.limit), 1 << 24),
            Rhythm(1 << 22),
            self._partition_of,
            self.addresses,
        )

    def _line_limit(self, generation: Generation) -> int:
        room = max(1000, self.addresses.overhead_max(generation))
        return max(LINE_BYTES_MIN, self.limit - room)

    def _partition_of(self, topic: str, key: bytes) -> TopicPartition | None:
        fixed = [one.topic for one in self.feeder.registry.inputs]
        return TopicPartition(topic, 0) if topic in (*fixed, *self.made) else None

    def make_topics(self) -> None:
        """Create the topics that files wait for."""
        for topic in self.feeder.wanted_topics:
            self.made.add(topic)
            self.feeder.topic_made(topic)

    def tell_progress(self, lines: int) -> None:
        """Report to the collector that the topic's consumer has read this number of lines."""
        asked = self.feeder.windows.to_ask(self.now_ms)
        self.feeder.windows.asked(asked, self.now_ms)
        progress = ReadProgress(lines, len(self.lines))
        self.feeder.windows.told(dict.fromkeys(asked, progress), self.now_ms)

    def down(self) -> None:
        self.commit()
        self.handles.close_all()

    def kill(self) -> None:
        """Kill the collector. The next one knows only what was committed."""
        self.sending.clear()
        self.handles.close_all()

    def send(self, *, everything: bool = False) -> None:
        """Take full batches, or all batches, and acknowledge them without a commit."""
        batches = self.feeder.outbox.take(everything=everything)
        for batch in batches:
            self.feeder.outbox.acknowledged(batch)
        self.sending += batches
        if batches:
            self.feeder.release()

    def commit(self) -> None:
        """Commit one transaction with all batches that were taken and with the positions."""
        self.send(everything=True)
        records = self.positions.cut(self.now_ms, self.feeder.covers)
        for batch in self.sending:
            self._take(batch)
            self.feeder.committed(batch)
        self.sending.clear()
        self.positions.committed()
        self.feeder.release()
        for key, value in records.items():
            name = decode_key(key, INSTANCE)
            assert name is not None
            if value is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = value

    def abort(self, *, is_refused: bool = False) -> None:
        """Abort the transaction. With `is_refused`, the brokers refused its lines. The collector
        then retries each partition alone."""
        self.send(everything=True)
        self.positions.cut(self.now_ms, self.feeder.covers)
        for batch in self.sending:
            self.feeder.outbox.given_back(batch, was_acknowledged=True)
            if is_refused:
                self.feeder.outbox.suspect(batch.place, self.now_ms)
        self.sending.clear()
        self.positions.given_up()

    def start_over(self) -> None:
        """Start over after a lost transaction. Handles stay open."""
        self.sending.clear()
        reader = self.feeder.reader
        self.registry.start_over(decode(name, value) for name, value in self.stored.items())
        self.handles.keep(self.registry.files())
        self._new_feeder(reader)

    def scan(self) -> None:
        self.feeder.wake(self.feeder.reader.judge(self.walker.scan(), self.now_ms))

    def scan_for(self, name: str) -> None:
        """Scan, and then wake only the file of this name."""
        found = self.feeder.reader.judge(self.walker.scan(), self.now_ms)
        self.feeder.wake(known for known in found if known.path == str(self.path(name)))

    def look(self) -> None:
        """Scan, read to the end, and commit. Repeat this as long as the collector requests another
        scan."""
        for _ in range(LOOKS_MAX):
            self.scan()
            self.read()
            self.now_ms += LOOK_MS
            self.age()
            if not self.feeder.reader.wants_scan:
                break
        assert not self.feeder.reader.wants_scan
        assert self.feeder.outbox.is_empty
        before = dict(self.registry.counters)
        self.scan()
        assert dict(self.registry.counters) == before, "deciding again finds nothing new"
        self.read()

    def look_and_wait(self, wait_ms: int) -> None:
        """Scan, read, wait for this time and read again, three times."""
        for _ in range(3):
            self.scan()
            self.read()
            self.now_ms += wait_ms
            self.read()

    def age(self) -> None:
        """Let time pass until open events are complete, no file waits for another, and NULs before
        text are skipped."""
        self.read()
        for _ in range(EVENT_ROUNDS):
            known = self.registry.generations.values()
            if any(one.doubt is not None and not one.state.has_ended for one in known):
                self.now_ms += HOLE_QUIET_MS
            elif any(one.is_holding_back for one in known):
                self.now_ms += LOOK_MS
            else:
                return
            self.read()
        raise AssertionError("an event stays open")

    def read(self) -> None:
        while True:
            self.feeder.step(self.now_ms)
            self.make_topics()
            self.send()
            if not self.feeder.is_busy:
                self.commit()
            if not self.feeder.is_busy and self.feeder.outbox.is_empty:
                return

    def quiet(self) -> None:
        """Let time pass until deleted files are closed."""
        for _ in range(2):
            self.now_ms += DRAIN_QUIET_MS
            self.look()

    def _take(self, batch: SendBatch) -> None:
        owners = [
            entry.generation for entry in batch.entries for _ in range(entry.piece.block.count)
        ]
        records = records_of([entry.piece for entry in batch.entries])
        for owner, (key, value, headers) in zip(owners, records, strict=True):
            assert value is not None
            self.records.append((owner, value))
            for line in value.split(b"\n") if self.has_events else [value]:
                self.sent.append((batch.partition.topic, line))
                self.keys.append(key)
                self.headers.append(headers)
                self.owners.append(owner)

    # --- the results --------------------------------------------------------------------------

    @property
    def lines(self) -> list[bytes]:
        """Return the sent lines of topic `t` and of the topics of a template `t.…`."""
        return [value for topic, value in self.sent if topic == "t" or topic.startswith("t.")]

    @property
    def numbers(self) -> list[int]:
        return [int(line) for line in self.lines]

    def count(self, name: str) -> int:
        return self.registry.counters[name]

    def states(self) -> dict[str, State]:
        return {g.path.rpartition("/")[2]: g.state for g in self.registry.generations.values()}

    def expect(self, lines: int, **counters: int) -> None:
        """Check the number of sent lines, that none was sent twice, and the given counters."""
        assert len(self.lines) == lines
        assert len(set(self.lines)) == lines
        if self.has_events:
            counters.pop("lines_total", None)  # this counter counts records, not lines
        found = {name: self.count(name) for name in counters}
        assert found == counters

    def move(self, old: str, new: str) -> None:
        self.path(old).rename(self.path(new))

    def inodes(self) -> Iterator[int]:
        return (os.stat(entry).st_ino for entry in self.folder.iterdir())

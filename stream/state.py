"""What the stream says about itself: one object that all of its threads write to.

The batch writer, the progress listener and the job note what happens; the status server reads
snapshots. Every method takes the one lock for a moment and does no I/O.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from protocol.status import PartState, PartStatus, Problem
from sinks.facts import SinkFacts
from sinks.mysql.recounts import Recount
from sinks.rows import OffsetRange, UnparsedRow
from stream.quarantine.search import PoisonLine
from stream.stages import NO_WORK, Stages, Work

UNPARSED_LISTED = 200
POISON_LISTED = 20

# Problems that do not end with the reason to wait, but with a batch that is counted.
POISON = "poison"
QUERY_ENDED = "query-ended"
_LASTING = frozenset({POISON, QUERY_ENDED})

# A thread that ended is told for so long: one that ends again and again, at all times.
ENDED_TOLD_MS = 600_000


def clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Phase(StrEnum):
    """Where the query is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """What the archive holds of a topic; `lost` offsets were deleted before they were archived."""

    topic: str
    pieces: int
    lines: int
    lost: int


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """How archiving goes; `problem` says what keeps it from going on, `at_ms` when that was."""

    folder: str
    topics: Sequence[ArchivedTopic]
    problem: str | None
    at_ms: int


@dataclass(slots=True)
class _Facts:
    phase: Phase = Phase.STARTING
    was_ready: bool = False
    is_stopping: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    query_id: str = ""
    epoch: int = -1
    batch_id: int = -1
    refusal: str | None = None
    stopped: Mapping[str, str] = field(default_factory=dict)
    recounts: Sequence[Recount] = ()
    archive: ArchiveFacts | None = None
    lines_total: int = 0
    unparsed_total: int = 0
    batches_total: int = 0
    replays_total: int = 0
    resumes_total: int = 0
    rows_last: int = 0
    sinks_ms: int = 0
    batch_ms: int = 0
    rows_per_second: float = 0.0
    lines_reported: int = 0
    last_batch_at_ms: int | None = None
    event_time_ms: int | None = None
    counted: dict[tuple[str, int], int] = field(default_factory=dict)
    latest: Mapping[tuple[str, int], int] | None = None
    durations_ms: dict[str, int] = field(default_factory=dict)
    unparsed: dict[tuple[str, str, str], int] = field(default_factory=dict)
    poison_total: int = 0
    poison: deque[PoisonLine] = field(default_factory=lambda: deque(maxlen=POISON_LISTED))
    ended: dict[str, tuple[str, int]] = field(default_factory=dict)

    def lasting(self) -> dict[str, str]:
        """The problems that only a counted batch ends."""
        return {code: text for code, text in self.problems.items() if code in _LASTING}


class StreamState:
    """The stream's own account of itself."""

    def __init__(self, part: str, metrics: Sequence[str], trigger_ms: int) -> None:
        self._part = part
        self._metrics = list(metrics)
        self._trigger_ms = trigger_ms
        self._lock = threading.Lock()
        self._facts = _Facts()
        self._stages = Stages(time.monotonic())
        self._sinks: Callable[[], SinkFacts] = SinkFacts
        self._started_at_ms = clock_ms()

    def watch_sinks(self, facts: Callable[[], SinkFacts]) -> None:
        """Where to ask how the sinks are."""
        self._sinks = facts

    def configured(self, metrics: Sequence[str]) -> None:
        """These metrics are counted, as the configuration asks for."""
        with self._lock:
            self._metrics = list(metrics)
            self._facts.refusal = None

    def refused(self, why: str) -> None:
        """The configuration asks for something else than what is counted, which cannot be."""
        with self._lock:
            self._facts.refusal = why

    def stopped_counting(self, metrics: Sequence[str], stopped: Mapping[str, str]) -> None:
        """These metrics are counted; inputs and metrics are stopped for the reason beside each."""
        with self._lock:
            self._metrics = list(metrics)
            self._facts.stopped = dict(stopped)

    def recounting(self, recounts: Sequence[Recount]) -> None:
        """These metrics are counted over lines that went by, or were given up."""
        with self._lock:
            self._facts.recounts = tuple(recounts)

    def archiving(self, facts: ArchiveFacts) -> None:
        """How the archive of raw lines is."""
        with self._lock:
            self._facts.archive = facts

    def starting(self, query_id: str, epoch: int) -> None:
        """A query is about to run."""
        with self._lock:
            self._facts.query_id, self._facts.epoch = query_id, epoch

    def running(self) -> None:
        """The query runs, and nothing it needs is away.

        Whether it counts is seen with its next batch: one that ends again and again runs, too.
        """
        with self._lock:
            self._facts.phase = Phase.RUNNING
            self._facts.was_ready = True
            self._facts.problems = self._facts.lasting()

    def waiting(self, code: str, text: str) -> None:
        """Something the query needs is away; it goes on by itself when that is back."""
        with self._lock:
            self._facts.phase = Phase.WAITING
            self._facts.problems = {**self._facts.lasting(), code: text}

    def thread_ended(self, name: str, why: str) -> None:
        """A thread that works beside the batches has ended of a fault; it is begun again."""
        with self._lock:
            self._facts.ended[name] = (why, clock_ms())

    def halving(self, text: str) -> None:
        """A batch is searched for lines that cannot be counted; ends with the batch."""
        with self._lock:
            self._facts.problems[POISON] = text

    def stopping(self) -> None:
        """The part was told to stop."""
        with self._lock:
            self._facts.is_stopping = True

    def stopped(self) -> None:
        """No query runs any more."""
        with self._lock:
            self._facts.phase = Phase.STOPPED

    def resumed(self) -> None:
        """A checkpoint was given up, and a new query resumes from the ledger."""
        with self._lock:
            self._facts.resumes_total += 1

    def batch_begins(self) -> None:
        """Spark has planned a batch and hands it over."""
        with self._lock:
            self._stages.begins(time.monotonic())

    def batch_ends(self) -> None:
        """No batch is in hand, be it counted or not."""
        with self._lock:
            self._stages.ends()

    def batch_applied(
        self,
        batch_id: int,
        lines: int,
        rows: int,
        unparsed: Sequence[UnparsedRow],
        ranges: Sequence[OffsetRange],
        *,
        replayed: bool,
        event_time_ms: int | None,
        sinks_ms: int,
        poison: Sequence[PoisonLine] = (),
        work: Work = NO_WORK,
    ) -> None:
        """The sinks have a batch. Replayed batches were counted before and are not again."""
        with self._lock:
            facts = self._facts
            self._stages.applied(batch_id, work, time.monotonic(), replayed=replayed)
            facts.phase, facts.was_ready = Phase.RUNNING, True
            facts.problems.clear()
            facts.batch_id, facts.rows_last, facts.sinks_ms = batch_id, rows, sinks_ms
            facts.counted |= {(one.topic, one.partition): one.end for one in ranges}
            facts.last_batch_at_ms = clock_ms()
            facts.batches_total += 1
            if replayed:
                facts.replays_total += 1
                return
            facts.lines_total += lines
            facts.poison_total += len(poison)
            facts.poison += poison
            if event_time_ms is not None:
                facts.event_time_ms = event_time_ms
            for row in unparsed:
                facts.unparsed_total += row.count
                group = (row.topic, row.file, row.reason)
                if group in facts.unparsed or len(facts.unparsed) < UNPARSED_LISTED:
                    facts.unparsed[group] = facts.unparsed.get(group, 0) + row.count

    def begins_at(self, counted: Mapping[tuple[str, int], int]) -> None:
        """Up to where every partition is counted before a query's first batch."""
        with self._lock:
            self._facts.counted = dict(counted)

    def topics_end_at(self, latest: Mapping[tuple[str, int], int]) -> None:
        """Where the topics ended just now."""
        with self._lock:
            self._facts.latest = dict(latest)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Spark's own report of a batch."""
        durations = {key: int(ms) for key, ms in progress.get("durationMs", {}).items()}
        with self._lock:
            self._facts.durations_ms = durations
            batch_id = int(progress.get("batchId", -1))
            self._stages.finished(batch_id, durations, time.monotonic(), clock_ms())
            self._facts.batch_ms = durations.get("triggerExecution", 0)
            # Spark does not know of the lines that the driver reads by itself (`folding.py`).
            lines = self._facts.lines_total - self._facts.lines_reported
            self._facts.lines_reported = self._facts.lines_total
            self._facts.rows_per_second = lines * 1000 / max(1, self._facts.batch_ms)

    def lines_behind(self, ranges: Sequence[OffsetRange]) -> int | None:
        """How many offsets of all topics wait once these are counted; None before that is known.

        The topics' ends are those of when the batch was planned. A partition of which nothing is
        known waits as a whole.
        """
        with self._lock:
            latest, counted = self._facts.latest, dict(self._facts.counted)
        if latest is None:
            return None
        counted |= {(one.topic, one.partition): one.end for one in ranges}
        return sum(max(0, end - counted.get(place, 0)) for place, end in latest.items())

    def idle(self) -> None:
        """There is nothing to read."""
        with self._lock:
            self._facts.rows_per_second = 0.0
            self._facts.problems.pop(QUERY_ENDED, None)

    def snapshot(self) -> PartStatus:
        """The status as served."""
        sinks, now_ms = self._sinks(), clock_ms()
        with self._lock:
            facts = self._facts
            problems = [Problem(code, text) for code, text in facts.problems.items()]
            problems += [
                Problem("thread-ended", f"the thread {name!r} ended, and was begun again: {why}")
                for name, (why, at_ms) in facts.ended.items()
                if now_ms - at_ms < ENDED_TOLD_MS
            ]
            if sinks.untended is not None:
                text = "nothing is purged and Redis is not compared, counting goes on: "
                text += sinks.untended
                problems.append(Problem("sinks-untended", text))
            if facts.refusal is not None:
                text = (
                    f"the changed configuration is refused, the one before goes on: {facts.refusal}"
                )
                problems.append(Problem("configuration", text))
            problems += [
                Problem(
                    "stopped",
                    f"{name} is stopped, everything else is counted: {why}. Correct it in the"
                    " configuration; `./millrace stream recount METRIC` then counts what went by",
                )
                for name, why in facts.stopped.items()
            ]
            if facts.archive is not None and facts.archive.problem is not None:
                text = f"raw lines are not archived, counting goes on: {facts.archive.problem}"
                problems.append(Problem("archive", text))
            if facts.is_stopping:
                state = PartState.STOPPING
            elif facts.phase is Phase.STARTING:
                state = PartState.STARTING
            elif facts.phase is Phase.RUNNING and not problems:
                state = PartState.RUNNING
            else:
                state = PartState.DEGRADED
            ready = facts.was_ready and not facts.is_stopping
            return PartStatus(
                part=self._part,
                state=state,
                ready=ready,
                started_at_ms=self._started_at_ms,
                now_ms=now_ms,
                problems=tuple(problems),
                details=self._details(facts, sinks),
            )

    def _details(self, facts: _Facts, sinks: SinkFacts) -> dict[str, object]:
        return {
            "query_id": facts.query_id,
            "epoch": facts.epoch,
            "batch_id": facts.batch_id,
            "phase": str(facts.phase),
            "rows_per_second": round(facts.rows_per_second, 1),
            "batch_ms": facts.batch_ms,
            "sinks_ms": facts.sinks_ms,
            "trigger_ms": self._trigger_ms,
            "lines_total": facts.lines_total,
            "fold_rows": facts.rows_last,
            "unparsed_total": facts.unparsed_total,
            "unparsed": [
                {"topic": topic, "file": file, "reason": reason, "count": count}
                for (topic, file, reason), count in sorted(facts.unparsed.items())
            ],
            "poison_total": facts.poison_total,
            "poison": [
                {
                    "topic": one.topic,
                    "file": one.file,
                    "partition": one.partition,
                    "offset": one.offset,
                    "reason": one.why,
                }
                for one in facts.poison
            ],
            "offsets": {f"{topic}-{part}": end for (topic, part), end in facts.counted.items()},
            "last_batch_at_ms": facts.last_batch_at_ms,
            "event_time_ms": facts.event_time_ms,
            "metrics": list(self._metrics),
            "stopped": [{"what": name, "why": why} for name, why in facts.stopped.items()],
            "recounts": [
                {"metric": one.metric, "left": one.left, "problem": one.problem}
                for one in facts.recounts
            ],
            "archive": None if facts.archive is None else asdict(facts.archive),
            **sinks.details(),
            "duration_ms": dict(facts.durations_ms),
            "stages": self._stages.told(time.monotonic()),
            "counters": {
                "batches": facts.batches_total,
                "replays": facts.replays_total,
                "resumes": facts.resumes_total,
            },
        }

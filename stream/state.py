"""The state of the stream for its status: one object that all threads write to.

The batch writer, the progress listener and the job report events. The status server reads
snapshots. Every method holds the one lock briefly and does no I/O.
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
from stream.stages import NO_WORK, BatchWork, StageSums

UNPARSED_LISTED = 200
POISON_LISTED = 20

# Problems that stay although the query runs again. They end when the sinks have stored a batch.
# All other problems end when the query runs, because then the missing server has answered.
POISON = "poison"
QUERY_ENDED = "query-ended"
_LASTING = frozenset({POISON, QUERY_ENDED})

# For how long the end of a thread is reported. So a thread that ends again and again is always
# reported.
ENDED_TOLD_MS = 600_000


def clock_ms() -> int:
    """Return the current time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class QueryPhase(StrEnum):
    """The phase of the query."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """The archived offsets and lines of a topic. `lost` offsets were deleted before they were
    archived.
    """

    topic: str
    pieces: int
    lines: int
    lost: int


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """The state of archiving at the time `at_ms`.

    `problem` says what prevents archiving; None if nothing does.
    """

    folder: str
    topics: Sequence[ArchivedTopic]
    problem: str | None
    at_ms: int


@dataclass(slots=True)
class _Facts:
    phase: QueryPhase = QueryPhase.STARTING
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
        """Return the problems that stay although the query runs again."""
        return {code: text for code, text in self.problems.items() if code in _LASTING}


class StreamState:
    """The state of the stream, which its threads report and the status server reads."""

    def __init__(self, part: str, metrics: Sequence[str], trigger_ms: int) -> None:
        self._part = part
        self._metrics = list(metrics)
        self._trigger_ms = trigger_ms
        self._lock = threading.Lock()
        self._facts = _Facts()
        self._stages = StageSums(time.monotonic())
        self._sinks: Callable[[], SinkFacts] = SinkFacts
        self._started_at_ms = clock_ms()

    def watch_sinks(self, facts: Callable[[], SinkFacts]) -> None:
        """Set the function that returns the state of the sinks."""
        self._sinks = facts

    def configured(self, metrics: Sequence[str]) -> None:
        """Record that the stream counts the configuration in the file, which ends a refusal."""
        with self._lock:
            self._metrics = list(metrics)
            self._facts.refusal = None

    def refused(self, why: str) -> None:
        """Record that the configuration was refused, and why."""
        with self._lock:
            self._facts.refusal = why

    def stopped_counting(self, metrics: Sequence[str], stopped: Mapping[str, str]) -> None:
        """Record the counted metrics, and each stopped input and metric with its reason."""
        with self._lock:
            self._metrics = list(metrics)
            self._facts.stopped = dict(stopped)

    def recounting(self, recounts: Sequence[Recount]) -> None:
        """Record the metrics being recounted, including those given up."""
        with self._lock:
            self._facts.recounts = tuple(recounts)

    def archiving(self, facts: ArchiveFacts) -> None:
        """Record the state of the archive of raw lines."""
        with self._lock:
            self._facts.archive = facts

    def starting(self, query_id: str, epoch: int) -> None:
        """Record that a query is about to run."""
        with self._lock:
            self._facts.query_id, self._facts.epoch = query_id, epoch

    def running(self) -> None:
        """Record that the query runs, and that every server it needs has answered.

        Lasting problems stay until the sinks have stored the next batch, because a query that ends
        again and again also runs for a while each time.
        """
        with self._lock:
            self._facts.phase = QueryPhase.RUNNING
            self._facts.was_ready = True
            self._facts.problems = self._facts.lasting()

    def waiting(self, code: str, text: str) -> None:
        """Record that a server which the query needs does not answer. The query waits for it."""
        with self._lock:
            self._facts.phase = QueryPhase.WAITING
            self._facts.problems = {**self._facts.lasting(), code: text}

    def thread_ended(self, name: str, why: str) -> None:
        """Record that a background thread ended with an error, and is restarted."""
        with self._lock:
            self._facts.ended[name] = (why, clock_ms())

    def halving(self, text: str) -> None:
        """Record that a batch is being searched for lines that cannot be counted.

        This problem ends when the sinks have stored the next batch.
        """
        with self._lock:
            self._facts.problems[POISON] = text

    def stopping(self) -> None:
        """Record that the stream was asked to stop."""
        with self._lock:
            self._facts.is_stopping = True

    def stopped(self) -> None:
        """Record that no query runs, and that none will be started."""
        with self._lock:
            self._facts.phase = QueryPhase.STOPPED

    def resumed(self) -> None:
        """Record that a checkpoint was given up, and a new query resumes from the ledger."""
        with self._lock:
            self._facts.resumes_total += 1

    def batch_begins(self) -> None:
        """Record that Spark has planned a batch and passes it on."""
        with self._lock:
            self._stages.begins(time.monotonic())

    def batch_ends(self) -> None:
        """Record that the work on a batch has ended, whether it was stored or failed."""
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
        work: BatchWork = NO_WORK,
    ) -> None:
        """Record that the sinks have stored a batch. A replayed batch was counted before."""
        with self._lock:
            facts = self._facts
            self._stages.applied(batch_id, work, time.monotonic(), replayed=replayed)
            facts.phase, facts.was_ready = QueryPhase.RUNNING, True
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
        """Record the offsets up to which lines were counted before a query's first batch."""
        with self._lock:
            self._facts.counted = dict(counted)

    def topics_end_at(self, latest: Mapping[tuple[str, int], int]) -> None:
        """Record the present ends of the topics."""
        with self._lock:
            self._facts.latest = dict(latest)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Add Spark's own report of a batch."""
        durations = {key: int(ms) for key, ms in progress.get("durationMs", {}).items()}
        with self._lock:
            self._facts.durations_ms = durations
            batch_id = int(progress.get("batchId", -1))
            self._stages.finished(batch_id, durations, time.monotonic(), clock_ms())
            self._facts.batch_ms = durations.get("triggerExecution", 0)
            # Compute the rate here, because Spark does not know about the lines that the driver
            # reads itself (`folding.py`).
            lines = self._facts.lines_total - self._facts.lines_reported
            self._facts.lines_reported = self._facts.lines_total
            self._facts.rows_per_second = lines * 1000 / max(1, self._facts.batch_ms)

    def lines_behind(self, ranges: Sequence[OffsetRange]) -> int | None:
        """Return how many offsets wait after these ranges.

        None if the topics' ends are not known yet.

        The topics' ends are those at the time when the batch was planned. In a partition from which
        nothing is counted, all offsets wait.
        """
        with self._lock:
            latest, counted = self._facts.latest, dict(self._facts.counted)
        if latest is None:
            return None
        counted |= {(one.topic, one.partition): one.end for one in ranges}
        return sum(max(0, end - counted.get(place, 0)) for place, end in latest.items())

    def idle(self) -> None:
        """Record that the query has read all lines. So it runs, although no batch shows that."""
        with self._lock:
            self._facts.rows_per_second = 0.0
            self._facts.problems.pop(QUERY_ENDED, None)

    def snapshot(self) -> PartStatus:
        """Return the status to serve."""
        sinks, now_ms = self._sinks(), clock_ms()
        with self._lock:
            facts = self._facts
            problems = [Problem(code, text) for code, text in facts.problems.items()]
            problems += [
                Problem("thread-ended", f"the thread {name!r} ended and was restarted: {why}")
                for name, (why, at_ms) in facts.ended.items()
                if now_ms - at_ms < ENDED_TOLD_MS
            ]
            if sinks.untended is not None:
                text = "counting continues, but old windows are not deleted, and Redis is not"
                text += f" compared with MySQL: {sinks.untended}"
                problems.append(Problem("sinks-untended", text))
            if facts.refusal is not None:
                text = (
                    "the changed configuration is refused; the stream keeps the previous one:"
                    f" {facts.refusal}"
                )
                problems.append(Problem("configuration", text))
            problems += [
                Problem(
                    "stopped",
                    f"{name} is stopped, everything else is counted: {why}. Correct it in the"
                    " configuration; `./millrace stream recount METRIC` then counts missed lines",
                )
                for name, why in facts.stopped.items()
            ]
            if facts.archive is not None and facts.archive.problem is not None:
                text = (
                    f"counting continues, but raw lines are not archived: {facts.archive.problem}"
                )
                problems.append(Problem("archive", text))
            if facts.is_stopping:
                state = PartState.STOPPING
            elif facts.phase is QueryPhase.STARTING:
                state = PartState.STARTING
            elif facts.phase is QueryPhase.RUNNING and not problems:
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

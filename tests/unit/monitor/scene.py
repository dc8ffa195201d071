"""A simulated mill for tests of pages: ten minutes of readings, processed by the monitor's own
code.

The readings go into `assemble` and the recorder, as those of a sampler do. So a page shows the same
as for a real mill with these readings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from monitor.alerts.core import Alerts
from monitor.alerts.kinds import measured
from monitor.asking.messages import Found, Wanted
from monitor.assembly.assemble import assemble
from monitor.assembly.readers import Memory
from monitor.config.settings import MetricSettings, MonitorSection
from monitor.history.recorder import Recorder, open_recorder
from monitor.state.progress import ProgressMemory
from monitor.state.reading import (
    Commit,
    ConfigValue,
    GroupReading,
    KafkaReading,
    MemberReading,
    NodeReading,
    PartAnswer,
    Reading,
    SupervisedPart,
    SupervisorAnswer,
    TopicReading,
)
from monitor.state.snapshot import DiskView, Snapshot, SourceError
from protocol.types import TopicPartition
from protocol.wire.record import Record
from sinks.read_counts import CountsReader, KeyCount, MetricCounts, WindowSum
from tests.unit.monitor import changing, three
from tests.unit.monitor.readings import GROUP, part_answer, part_down, topic_reading
from tests.unit.monitor.scene_stages import SceneStages

STEP_MS = 5_000
STEPS = 120
NOW_MS = 1_795_557_508_000
BEGIN_MS = NOW_MS - STEPS * STEP_MS
SLASHED = "team/billing export"
HOSTILE = "<img src=x onerror=alert(1)>"
PARTITIONS = 3
LINES_A_STEP = 10_000
METRICS = (
    MetricSettings(name="requests_by_status", inputs=("access",), key=("status",), measure="count"),
    MetricSettings(
        name="bytes_by_status", inputs=("access",), key=("status",), measure="sum", value="bytes"
    ),
    MetricSettings(name="visitors", inputs=("access",), measure="unique", value="remote_addr"),
)


@dataclass(frozen=True, slots=True)
class Story:
    """What happens during the ten minutes. Steps are numbered from 0."""

    burst_at: int | None = None
    burst_lines: int = 0
    stands_from: int | None = None
    down: frozenset[str] = frozenset()
    down_from: int = STEPS
    brokers_away_from: int | None = None
    is_empty: bool = False
    failed: dict[str, str] = field(default_factory=dict)
    notice: str | None = None
    problem: str | None = None
    is_three: bool = False
    """There are three brokers, and the second one dies at step `broker_down_from`."""
    is_changing: bool = False
    """A broker is emptied, another gets its replicas, and a third one is restarted."""
    broker_down_from: int = STEPS + 1
    rests_from: int | None = None
    """From this step on, the cycles skip the group SLASHED and the group that was never read."""
    free_bytes: int = 41 << 30
    counters: dict[str, int] = field(default_factory=dict)
    """More counters of the collector. If one counts dead letters, their topic exists."""
    unmatched: tuple[str, ...] = ()
    """Files in the watched folder that no input matches, with the names that the collector
    reports."""
    is_older: bool = False
    """True if the stream is of an older version that reports no stages."""


FLOWING = Story()
CATCHING_UP = Story(burst_at=85, burst_lines=900_000)
STUCK = Story(stands_from=90)
STREAM_DOWN = Story(down=frozenset({"stream"}), down_from=100)
MYSQL_AWAY = Story(down=frozenset({"mysql"}), down_from=100, stands_from=100)
NO_BROKER = Story(brokers_away_from=110)
EMPTY = Story(is_empty=True)
THREE = Story(is_three=True)
BROKER_DOWN = Story(is_three=True, broker_down_from=108)
CHANGING = Story(is_changing=True)
OLDER = Story(is_older=True)
RESTING = Story(rests_from=STEPS - 1)
DISK_FULL = Story(free_bytes=5 << 30)
FAILED = Story(
    down=frozenset({"stream"}),
    down_from=0,
    failed={"stream": "metric top_paths: its key has changed; give it another name"},
)


class Mill:
    """Feeds a story to the monitor's own code, step by step."""

    def __init__(self, story: Story, folder: Path | None) -> None:
        self.story = story
        self.memory = Memory()
        self.progress = ProgressMemory()
        self.alerts = Alerts(MonitorSection().alerts.all_rules())
        self.snapshot: Snapshot | None = None
        self.recorder: Recorder | None = None
        if folder is not None:
            self.recorder = open_recorder(folder, 90 * 86_400_000, GROUP)
        self._ends = 0 if story.is_empty else 50_000_000
        self._commit = self._ends
        self._export = self._ends
        self._counted = 0
        self._stages = SceneStages(STEP_MS / 1000)

    def run(self, steps: int = STEPS) -> Snapshot:
        """Run all remaining steps, and return the last snapshot."""
        for step in range(steps + 1):
            self.take(self.reading(step))
        assert self.snapshot is not None
        return self.snapshot

    def take(self, one: Reading) -> None:
        """Process a reading as the sampler does."""
        snapshot = assemble(
            one,
            self.snapshot,
            self.memory,
            self.progress,
            refresh_ms=2_000,
            bootstrap_servers="127.0.0.1:19092",
            stream_group=GROUP,
        )
        found = measured(self.alerts.rules, snapshot)
        self.snapshot = replace(snapshot, alerts=self.alerts.look(found, snapshot.taken_at_ms))
        if self.recorder is not None:
            self.recorder.take(self.snapshot, self.alerts.kept())

    def reading(self, step: int) -> Reading:
        """Return the reading of the mill at a step."""
        story, now_ms = self.story, BEGIN_MS + step * STEP_MS
        before = self._commit
        if not story.is_empty:
            self._ends += LINES_A_STEP
            if step == story.burst_at:
                self._ends += story.burst_lines
            if story.stands_from is None or step < story.stands_from:
                self._commit = min(self._ends - 60, self._commit + 25_000)
            self._export += 2_000 if step > 60 else LINES_A_STEP
        self._counted = self._commit - before
        kafka: KafkaReading | None = self._kafka(now_ms)
        errors: tuple[SourceError, ...] = ()
        if story.brokers_away_from is not None and step >= story.brokers_away_from:
            kafka = None
            errors = (SourceError("brokers", "127.0.0.1:19092: Connection refused"),)
        if kafka is not None and story.rests_from is not None and step >= story.rests_from:
            awake = tuple(one for one in kafka.groups if one.group_id != SLASHED)
            kafka = replace(kafka, groups=awake, rested=frozenset({SLASHED, "never seen"}))
        parts = self._parts(step, now_ms)
        if story.is_three and kafka is not None:
            is_down = step >= story.broker_down_from
            kafka = three.three(kafka, is_down)
            others = tuple(one for one in parts if one.name != "broker-1")
            parts = (*three.brokers(kafka, is_down), *others)
        if story.is_changing and kafka is not None:
            kafka = changing.changing(kafka)
            copied = changing.COPIED_S * STEP_MS // 1_000 * step
            others = tuple(one for one in parts if one.name != "broker-1")
            parts = (*changing.brokers(kafka, copied), *others)
        disks = (DiskView("data", self.story.free_bytes, 120 << 30),)
        return Reading(now_ms, parts, kafka, errors, self._supervisor(now_ms), disks)

    def _kafka(self, now_ms: int) -> KafkaReading:
        topics: tuple[TopicReading, ...] = (
            topic_reading("logs.access", PARTITIONS),
            topic_reading("logs.json", PARTITIONS),
            replace(topic_reading("__consumer_offsets", 6), internal=True),
        )
        if "dead_lettered" in self.story.counters:
            topics = (*topics, topic_reading("millrace.dead-letters", 1))
        rows = [part.topic_partition for topic in topics for part in topic.partitions]
        ends = {row: self._ends // 6 if row.topic.startswith("logs.") else 900 for row in rows}
        lines = [row for row in rows if row.topic.startswith("logs.")]
        groups: tuple[GroupReading, ...] = ()
        if not self.story.is_empty:
            commits = {row: Commit(self._commit // 6) for row in lines}
            exported = {row: Commit(self._export // 6, "batch 7") for row in lines[:5]}
            member = MemberReading(
                "export-1-uuid", "export-1", "10.0.7.21", "billing-1", frozenset(lines)
            )
            groups = (
                GroupReading(GROUP, "Empty", (), commits, coordinator=1),
                GroupReading("nightly", "Empty", (), {lines[0]: Commit(ends[lines[0]])}),
                GroupReading(SLASHED, "Stable", (member,), exported, None, 1, "cooperative-sticky"),
            )
        config = {"retention.ms": ConfigValue("604800000", "DYNAMIC_TOPIC_CONFIG")}
        return KafkaReading(
            at_ms=now_ms,
            cluster_id="MkXfIN6sQkqKw4b27SM4Wg",
            controller_id=1,
            nodes=(NodeReading(1, "127.0.0.1:19092", None),),
            topics=topics,
            groups=groups,
            starts=dict.fromkeys(rows, 0),
            ends=ends,
            record_timestamps=self._timestamps(lines, now_ms),
            topic_configs={"logs.access": config},
            quorum=three.alone(now_ms),
        )

    def _timestamps(
        self, lines: list[TopicPartition], now_ms: int
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the timestamp of the next record of a stalled reader."""
        if self.story.stands_from is None:
            return {}
        at_ms = BEGIN_MS + self.story.stands_from * STEP_MS
        return {(row, self._commit // 6): min(now_ms, at_ms) for row in lines}

    def _parts(self, step: int, now_ms: int) -> tuple[PartAnswer, ...]:
        rate = LINES_A_STEP * 1000 / STEP_MS
        files = [
            _file("watched/access/access.log", 3_120_000_000, 0, "idle"),
            _file(f"watched/access/{HOSTILE}.log", 18_200, 96, "reading"),
            _file("watched/json/old.log.gz", 9_000_000, 0, "damaged", "damaged after byte 17"),
        ]
        stages = self._stages.told(step, now_ms, self._counted, self._ends - self._commit)
        batch_ms = self._stages.last_ms
        standing = self.story.stands_from is not None and step >= self.story.stands_from
        batch = {"batch_id": step, "batch_ms": batch_ms, "rows_per_second": rate}
        if self.story.is_empty:
            files, rate, batch = [], 0.0, {"batch_id": -1, "batch_ms": 0, "rows_per_second": 0.0}
        answers: tuple[PartAnswer, ...] = (
            part_answer("mysql", now_ms, uptime_s=272_000, batch_id=step, epoch=24, seq=step,
                        lines_unparsed=214, lines_set_aside=3, metric_faults=1_130,
                        unparsed=UNPARSED),
            part_answer("redis", now_ms, batch=str(step), keys=41_208,
                        updated_at="2026-11-24T21:58:28Z"),
            part_answer("broker-1", now_ms, flush="ack", log_bytes=9 << 30, connections=14,
                        requests_total=4_300_112, bytes_in_per_s=(2 << 20) + step * 900,
                        bytes_out_per_s=(5 << 20) + step * 700, requests_per_s=120.5,
                        flush_us=1_500, flush_us_p99=2_400 + step % 7 * 100,
                        loop_late_us_p99=1_200 + step % 5 * 80, loop_late_us_max=9_000,
                        parked_produces=0, parked_fetches=2, parked_joins=0, apis=APIS,
                        topic_list=TOPICS),
            part_answer("collector", now_ms, files=files, files_total=len(files),
                        rate_lines_s=rate, lines_total=self._ends, bytes_total=self._ends * 96,
                        lag_bytes_total=96 if files else 0, inputs=3, instance="a-uuid",
                        busy=None if self.story.is_older else 0.031,
                        unmatched=list(self.story.unmatched),
                        unmatched_total=len(self.story.unmatched),
                        counters={"rotated": 2, "lines_total": 4, **self.story.counters}),
            part_answer("stream", now_ms, **batch, epoch=-1 if self.story.is_empty else 24,
                        phase="running", sinks_ms=90, trigger_ms=100, lines_total=self._commit,
                        last_batch_at_ms=None if self.story.is_empty else now_ms - 300,
                        unparsed_total=0, sinks={"mysql": "ok", "redis": "ok"},
                        duration_ms={"triggerExecution": 180, "addBatch": 150},
                        stages=None if self.story.is_older else stages,
                        metrics=[metric.name for metric in METRICS], query_id="c0fe33d7"),
        )  # fmt: skip
        if standing:
            answers = tuple(
                replace(one, status=replace(one.status, details={**one.status.details,
                                                                 "rows_per_second": 0.0}))
                if one.name == "stream" and one.status is not None else one
                for one in answers
            )  # fmt: skip
        return tuple(
            part_down(one.name)
            if one.name in self.story.down and step >= self.story.down_from
            else one
            for one in answers
        )

    def _supervisor(self, now_ms: int) -> SupervisorAnswer:
        parts = {
            name: SupervisedPart("healthy", "", None, 0, now_ms - BEGIN_MS + 90_000_000, 1_000,
                                 (30 + 20 * number) << 20)
            for number, name in enumerate(("mysql", "redis", "broker-1", "collector", "stream"))
        }  # fmt: skip
        for name, words in self.story.failed.items():
            parts[name] = SupervisedPart("failed", "it refused", words, 0, None, None)
        if self.story.is_changing:
            parts = changing.turn(parts)
        return SupervisorAnswer(self.story.problem, self.story.notice, parts)


def _file(
    path: str, size: int, lag: int, state: str, error: str | None = None
) -> dict[str, object]:
    return {
        "path": path, "topic": "logs.access", "size_bytes": size, "position": size - lag,
        "lag_bytes": lag, "lines": size // 96, "state": state, "verdict": "continued",
        "error": error,
    }  # fmt: skip


UNPARSED = [
    {"topic": "logs.access", "file": "access/edge-2.log", "reason": "format:combined",
     "count": 214},
    {"topic": "logs.json", "file": "json/app.log", "reason": "expression_null:slow_ms",
     "count": 1_130},
    {"topic": "logs.text", "file": HOSTILE, "reason": "poison", "count": 3},
]  # fmt: skip
APIS = [{"api": "produce", "count": 7_000, "queue_us": 3, "local_us": 12, "remote_us": 4_500,
         "send_us": 27}]  # fmt: skip
TOPICS = [{"topic": "logs.access", "bytes_in": 5 << 20, "bytes_out": 7 << 20,
           "size_bytes": 9 << 20}]  # fmt: skip


class ScriptedCounts(CountsReader):
    """A double of MySQL with scripted counts."""

    def __init__(self) -> None:
        """Open no connection."""

    def close(self) -> None:
        """Do nothing, because no connection is open."""

    def names(self) -> list[str]:
        return [metric.name for metric in METRICS]

    def since(self) -> dict[str, object]:  # type: ignore[override]
        return {}

    def read(self, name: str, size_s: int, now_s: int, *, windows: int, keys: int) -> MetricCounts:
        first = now_s // size_s * size_s
        is_unique = name == "visitors"
        value = None if name == "requests_by_status" else Decimal(3_012)
        found = tuple(
            WindowSum(first - (59 - n) * size_s, 90_000 + n * n * 9, value and value * n, 3)
            for n in range(60)
        )
        totals = tuple(
            KeyCount((key,), count, None if value is None else Decimal(count * 96))
            for key, count in (("200", 299_545_807), ("304", 21_322_434), (HOSTILE, 10_661_217))
        )
        if is_unique:
            totals = (KeyCount((), 9_000, Decimal(1_284_000)),)
        return MetricCounts(name, size_s, found, totals, len(totals), is_unique)


class StandingStill:
    """A source that repeats the mill's last reading."""

    def __init__(self, mill: Mill) -> None:
        self._last = mill.reading(STEPS)

    async def read(self, now_ms: int) -> Reading:
        return self._last

    async def close(self) -> None:
        return None


class ScriptedMessages:
    """A double that returns the scripted records of a topic."""

    async def read(self, wanted: Wanted, partitions: Sequence[int]) -> Found:
        row = TopicPartition(wanted.topic, partitions[0])
        values = (
            b'203.0.113.7 - - [24/Nov/2026:21:58:27 +0000] "GET /catalogue/lamps?page=3 HTTP/1.1"'
            b' 200 5120 "https://shop.example/catalogue" "Mozilla/5.0 (X11; Linux x86_64)"',
            b'{"level":"warn","timing":{"total":412.50,"database":[101.2,96.0]},"path":"/pay"}',
            HOSTILE.encode(),
            b"\x00\x01\xff\xfe binary",
            None,
        )
        records = tuple(
            (row, Record(90 - n, NOW_MS - n * 40, b"access/edge-2.log", value, HEADERS, -1))
            for n, value in enumerate(values)
        )
        return Found(records, (), len(records), {row: 0}, {row: 100})


HEADERS = (("file", b"watched/access/edge-2.log"), ("offset", b"18200"))

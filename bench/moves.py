"""Measure producers while a topic gets two more replicas of `--size` bytes.

Three brokers run. The topic `copied` has one replica of each partition and
`min.insync.replicas=2`, and `--size` bytes are written to it. The topic `live` has three replicas.
In each of three phases, one producer with acks=all writes 2,000 lines a second to `live`, and
another writes 50 records a second to `copied`:

1. alone: nothing is copied.
2. throttled: `copied` gets three replicas at 1 MB/s for each broker and direction. After a fixed
   time each partition gets back its single replica.
3. beside: `copied` gets three replicas without a throttle, until all of it is copied.

So the last phase copies twice `--size` bytes, and all figures of the copy are for these bytes. The
estimates of the remaining time are those of `millrace reassign execute`. The producer to `copied`
does not retry, so a refused record ends the measurement.
"""

import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from appliance.cli.reassign_throttle import copies_text
from appliance.kafka import reassign, throttles
from appliance.kafka.reassignment_files import Targets
from appliance.kafka.replica_copies import disk_use, follow
from appliance.kafka.session import open_cluster, run
from bench.broker_cases import leaders
from bench.catch_up import PARTITIONS, PacedLines, between, fill
from bench.librdkafka import OF_THREE, Lost, Replication, Topics
from bench.measurement import Figures, Measurement
from bench.move_figures import (
    GOALS,
    EtaSample,
    Phase,
    acknowledgement_figures,
    copy_figures,
    eta_figures,
)
from bench.report import note
from bench.servers import Server, server
from bench.session import Bench
from protocol.client.cluster import Cluster
from protocol.copy_progress import CopyEstimate
from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

PART = "moves"
COPIED, LIVE = "copied", "live"
OF_ONE = Replication(1, "all", {"min.insync.replicas": "2"})
LINES_PER_S = 2_000
WRITES_PER_S = 50
NO_RETRY = {"retries": 0}
THROTTLE = 1_000_000
"""The bytes a second that each broker sends and receives for copies in the second phase."""
WARM_UP_S = 2.0
"""The time in seconds for which the producers write before a phase begins."""
UNDONE_DEADLINE_S = 60.0

T = TypeVar("T")


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure with a new cluster in each run."""
    gigabytes = bench.options.size_bytes / 1e9
    case = f"one replica of {gigabytes:g} GB becomes three beside {LINES_PER_S:,} lines/s"
    yield Measurement(PART, case, bench.repeat(case, partial(_run, bench)), goals=GOALS)


def _run(bench: Bench) -> Figures:
    folder = bench.new_folder("moves")
    try:
        with ClusterProcesses(folder, {"log.flush.interval.messages": 1}) as processes:
            ours = server("millrace", processes.bootstrap, processes.pids, OF_THREE)
            return _Scene(bench, ours).measure()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Scene:
    """The two topics of one cluster, and the number of records that were acknowledged."""

    def __init__(self, bench: Bench, ours: Server) -> None:
        self._bench = bench
        self._ours = ours
        self._acknowledged = {COPIED: 0, LIVE: 0}

    def measure(self) -> Figures:
        """Measure all phases. Raises Lost if a record is missing, refused or there twice."""
        self._fill()
        options = self._bench.options
        with _loaded(self._ours) as load:
            time.sleep(options.sized(20, 5))
            alone = self._end(load, "alone")
        throttled, throttled_bytes = self._throttled(options.sized(60, 10))
        targets = self._asked(_targets)
        to_copy = self._asked(partial(_to_copy, targets=targets))
        note(f"copying {to_copy / 1e6:,.0f} MB")
        with _loaded(self._ours) as load:
            samples = self._asked(partial(_copy, targets=targets, load=load))
            beside = self._end(load, "beside")
        self._check()
        return {
            **acknowledgement_figures(alone, throttled, beside),
            "throttled_mb_per_s": throttled_bytes / throttled.seconds / 1e6,
            **copy_figures(alone, beside, to_copy),
            **eta_figures(samples, to_copy, load.ended_s),
        }

    def _fill(self) -> None:
        Topics(self._ours.bootstrap, OF_ONE).create(COPIED, PARTITIONS, {})
        self._ours.topics.create(LIVE, PARTITIONS, {})
        for topic in (COPIED, LIVE):
            leaders(self._ours, topic, PARTITIONS)
        self._acknowledged[COPIED] += fill(self._bench, self._ours, COPIED)

    def _throttled(self, seconds: float) -> tuple[Phase, int]:
        """Copy with a throttle for some seconds, and undo it. Return the phase and the bytes that
        were copied in it. Raises Lost if the copy ended before."""
        targets = self._asked(_targets)
        asked_bytes = partial(_to_copy, targets=targets)
        whole = self._asked(asked_bytes)
        note(f"copying at {THROTTLE / 1e6:g} MB/s for {seconds:g} s")
        with _loaded(self._ours) as load:
            self._asked(partial(_start_throttled, targets=targets))
            load.begin()
            before = self._asked(asked_bytes)
            time.sleep(seconds)
            left = self._asked(asked_bytes)
            phase = self._end(load, "throttled")
        if not left:
            raise Lost("the copy with a throttle is complete already: use a larger --size")
        self._asked(partial(_undo, targets=targets))
        wait_until(
            lambda: self._asked(asked_bytes) >= whole, UNDONE_DEADLINE_S, "the copies deleted"
        )
        return phase, before - left

    def _end(self, load: "_Load", name: str) -> Phase:
        """End the producers, add their records to the sums, and return the phase that ends now."""
        phase = load.end(name)
        self._acknowledged[COPIED] += load.writes_total
        self._acknowledged[LIVE] += load.lines_total
        return phase

    def _check(self) -> None:
        """Raise Lost unless each topic has as many records as were acknowledged."""
        for topic, acknowledged in self._acknowledged.items():
            found = self._ours.topics.record_count(topic, PARTITIONS)
            if found != acknowledged:
                raise Lost(
                    f"topic {topic}: found {found} records, expected the {acknowledged} that were "
                    "acknowledged"
                )

    def _asked(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Connect to the cluster, as a command does, and run an action on it."""

        async def answered() -> T:
            async with open_cluster(self._ours.bootstrap) as cluster:
                return await work(cluster)

        return run(answered())


class _Load:
    """Both producers, and the use of CPU time and memory by the brokers."""

    def __init__(self, ours: Server) -> None:
        self._ours = ours
        self.lines = PacedLines(ours.bootstrap, LIVE, LINES_PER_S)
        self.writes = PacedLines(ours.bootstrap, COPIED, WRITES_PER_S, NO_RETRY)
        self._pss_mib = 0.0
        self._began_s = self._began_cpu_s = 0.0
        self.ended_s = 0.0
        self.lines_total = self.writes_total = 0

    def begin(self) -> None:
        """Begin the phase, or begin it again."""
        self._began_s, self._began_cpu_s = time.perf_counter(), self._ours.cpu_s

    def note_memory(self) -> None:
        """Measure the memory of the brokers. The phase has the largest value."""
        self._pss_mib = max(self._pss_mib, self._ours.pss_mib)

    def end(self, name: str) -> Phase:
        """End the phase, and then the producers. Raises Lost unless all records were
        acknowledged."""
        self.ended_s, cpu_s = time.perf_counter(), self._ours.cpu_s - self._began_cpu_s
        self.note_memory()
        lines, writes = self.lines.finish(), self.writes.finish()
        self.lines_total, self.writes_total = len(lines), len(writes)
        return Phase(
            name,
            between(lines, self._began_s, self.ended_s),
            between(writes, self._began_s, self.ended_s),
            self.ended_s - self._began_s,
            cpu_s,
            self._pss_mib,
        )


@contextmanager
def _loaded(ours: Server) -> Iterator[_Load]:
    """Let both producers write within the block, whose phase begins after a warm-up."""
    load = _Load(ours)
    with load.lines, load.writes:
        time.sleep(WARM_UP_S)
        load.begin()
        yield load


async def _targets(cluster: Cluster) -> Targets:
    """Return a plan that gives each partition of the topic all brokers. The present leader stays
    the first replica."""
    found = await reassign.look(cluster, {COPIED})
    return {
        tp: (*one.replicas, *sorted(set(found.brokers) - set(one.replicas)))
        for tp, one in found.partitions()
    }


async def _to_copy(cluster: Cluster, targets: Targets) -> int:
    """Return the bytes that all replicas of a plan lack together."""
    disks = await disk_use(cluster, {one for target in targets.values() for one in target})
    return sum(disks.missing(tp, one) for tp, target in targets.items() for one in target)


async def _start_throttled(cluster: Cluster, targets: Targets) -> None:
    found = await reassign.look(cluster, {COPIED})
    current = {tp: one.replicas for tp, one in found.partitions()}
    plan = throttles.plan_throttle(found.moving, targets, current, found.brokers)
    await throttles.set_throttle(cluster, plan, THROTTLE)
    reassign.refuse_errors(await reassign.start(cluster, targets))


async def _undo(cluster: Cluster, targets: Targets) -> None:
    """Give each partition of a plan back its single replica, which is the first one of the plan.

    A cancellation would be refused for a small partition that is complete already.
    """
    found = await reassign.look(cluster, {COPIED})
    single = {tp: target[:1] for tp, target in targets.items()}
    reassign.refuse_errors(await reassign.start(cluster, single))
    await throttles.clear_throttle(cluster, found.brokers, {COPIED})


async def _copy(cluster: Cluster, targets: Targets, load: _Load) -> list[EtaSample]:
    """Start a plan, and follow it as `millrace reassign execute` does until it is complete.

    Return the estimates that the command shows. Raises Lost if a partition does not get its target.
    """
    samples: list[EtaSample] = []
    shown: list[CopyEstimate | None] = [None]

    def left(_: int, estimate: CopyEstimate | None) -> None:
        if estimate is not None and estimate is not shown[-1]:
            samples.append(EtaSample(time.perf_counter(), estimate.to_go, estimate.eta_s))
            note(copies_text(estimate))
            load.note_memory()
        shown.append(estimate)

    reassign.refuse_errors(await reassign.start(cluster, targets))
    load.begin()
    open_targets = await follow(cluster, targets, left)
    if open_targets:
        raise Lost(f"partitions did not get their targets: {open_targets}")
    return samples

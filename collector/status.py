"""Reports the state of the collector: the details of `/status` and the text of `/metrics`.

The module only reads the agent's state. Files are listed with the largest lag first, at most a
thousand. The totals include all files.
"""

import heapq
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collector.agent import Agent
from collector.config.settings import (
    HELD_BYTES_WARN,
    STATUS_FILES_MAX,
    STATUS_LOST_MAX,
    STATUS_UNMATCHED_MAX,
)
from collector.identity.generation import Generation
from collector.identity.sightings import State
from collector.problems import problems_of
from protocol.collector_report import CollectorReport
from protocol.status import VERSION, PartState, PartStatus, Problem


def shown(path: str) -> str:
    """Return a path as text, even if its bytes are not UTF-8."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def file_state(generation: Generation) -> str:
    """Return one word for the state of a file."""
    archive = generation.archive
    if generation.error:
        return "unreadable"
    if generation.state is State.DRAINING:
        return "draining"
    if archive is not None and archive.damage is not None:
        return "damaged"
    if archive is not None and archive.content_size is None:
        return "waiting"
    return "reading" if generation.lag_bytes else "idle"


def file_error(generation: Generation) -> str | None:
    """Return why a file is not read; None if it is read."""
    archive = generation.archive
    if archive is not None and archive.damage is not None:
        return f"damaged after byte {archive.content_size} of its content: {archive.damage}"
    if archive is not None and archive.content_size is None:
        return "the archive is not complete yet"
    return generation.error or None


def evidence_of(generation: Generation) -> dict[str, object]:
    """Return what identifies a file: device, inode, and how many of its bytes were hashed."""
    print_ = generation.raw_print() or generation.read_print()
    return {
        "device": generation.file.device,
        "inode": generation.file.inode,
        "birth_ns": generation.birth_ns,
        "head_bytes": print_.heads[-1].length if print_.heads else 0,
        "marker_bytes": print_.marker_length,
        "checksum": print_.crc is not None,
    }


def file_row(generation: Generation) -> dict[str, object]:
    """Return the row of one file for the status."""
    return {
        "path": shown(generation.path),
        "topic": generation.topic,
        "size_bytes": generation.size,
        "position": generation.safe_position,
        "lag_bytes": generation.lag_bytes,
        "unread_bytes": generation.unread_bytes,
        "lines": generation.committed_lines,
        "state": file_state(generation),
        "verdict": None if generation.verdict is None else str(generation.verdict),
        "evidence": evidence_of(generation),
        "error": file_error(generation),
    }


def originals_of(generations: Iterable[Generation]) -> dict[str, str]:
    """Map the path of each file that repeats another file's bytes to the path of that other file.

    Both files were read from their start, so the lines of the copy are included twice.
    """
    first: dict[tuple[int, int], Generation] = {}
    found = {}
    for generation in generations:
        crc = generation.read_crc
        if not generation.position or crc is None or generation.copy_of is not None:
            continue
        original = first.setdefault((generation.position, crc), generation)
        is_copy = original.first_path != generation.first_path
        if is_copy and original.record_key != generation.record_key:
            found[generation.name] = shown(original.path)
    return found


def living(agent: Agent) -> list[Generation]:
    """Return the files that are being read or can be read."""
    found = agent.registry.generations.values()
    return [generation for generation in found if not generation.state.has_ended]


def held_deleted(generations: Iterable[Generation]) -> tuple[int, int]:
    """Return the number and size of deleted files that are still being read.

    The file system frees these bytes only when the files are closed.
    """
    sizes = [one.size for one in generations if one.state is State.DRAINING]
    return len(sizes), sum(sizes)


def lost_row(generation: Generation) -> dict[str, object]:
    """Return the row of a file whose lines may be lost."""
    return {
        "path": shown(generation.path),
        "verdict": None if generation.verdict is None else str(generation.verdict),
        "position": generation.safe_position,
        "size_bytes": generation.text_end,
    }


def busy(agent: Agent) -> float:
    """Return the processor time of the last ten seconds as a share of one core."""
    return round(min(1.0, agent.work.per_second() / 1000), 4)


def details(agent: Agent) -> dict[str, object]:
    """Return the collector's part of its status."""
    alive = living(agent)
    furthest_behind = heapq.nlargest(
        STATUS_FILES_MAX, alive, key=lambda generation: generation.lag_bytes
    )
    counters = agent.registry.counters
    copies = originals_of(alive)
    lost = [known for known in agent.registry.generations.values() if known.lost_possible]
    return {
        "instance": agent.instance,
        "files": [
            file_row(generation) | {"same_as": copies.get(generation.name)}
            for generation in furthest_behind
        ],
        "files_total": len(alive),
        "lost_possible": [lost_row(known) for known in lost[:STATUS_LOST_MAX]],
        "files_held": agent.feeder.held_files,
        "held_deleted_bytes": held_deleted(alive)[1],
        "lag_bytes_total": sum(generation.lag_bytes for generation in alive),
        "lines_total": counters["lines_total"],
        "bytes_total": counters["bytes_total"],
        "rate_lines_s": round(agent.rate.per_second(), 1),
        "busy": busy(agent),
        "inputs": len(agent.registry.inputs),
        "unmatched": [shown(path) for path in agent.lookout.unmatched[:STATUS_UNMATCHED_MAX]],
        "unmatched_total": len(agent.lookout.unmatched),
        "config_sha256": None if agent.reloading is None else agent.reloading.sha256,
        "counters": dict(sorted(counters.items())),
    }


def all_problems(agent: Agent) -> tuple[Problem, ...]:
    """Return all current problems. One problem stands for all files that cannot be read."""
    problems = problems_of(agent)
    unreadable = [generation for generation in living(agent) if generation.error]
    if unreadable:
        first = unreadable[0]
        text = f"{len(unreadable)} files cannot be read, among them {first.path}: {first.error}"
        problems = (*problems, Problem("files", text))
    count, size = held_deleted(living(agent))
    if size >= HELD_BYTES_WARN:
        text = f"{count} deleted files with {size} bytes are open, because they have unsent lines"
        problems = (*problems, Problem("held", text))
    return problems


def state_of(agent: Agent, problems: tuple[Problem, ...]) -> PartState:
    """Return the collector's state. A collector with problems is degraded."""
    is_degraded = agent.state is PartState.RUNNING and problems
    return PartState.DEGRADED if is_degraded else agent.state


def report_of(agent: Agent, started_at_ms: int, now_ms: int) -> CollectorReport:
    """Return the collector's report for its mill, without the skew of its clock."""
    alive, problems = living(agent), all_problems(agent)
    section = agent.settings.section
    return CollectorReport(
        instance=agent.instance,
        group=section.group or "",
        host=agent.host,
        version=VERSION,
        state=str(state_of(agent, problems)),
        at_ms=now_ms,
        started_at_ms=started_at_ms,
        problems=problems,
        problems_total=len(problems),
        files=len(alive),
        lag_bytes=sum(generation.lag_bytes for generation in alive),
        held_deleted_bytes=held_deleted(alive)[1],
        lines_total=agent.registry.counters["lines_total"],
        last_commit_ms=agent.committer.committed_at_ms,
        commit_interval_ms=section.commit_interval,
    )


def part_status(agent: Agent, started_at_ms: int, now_ms: int) -> PartStatus:
    """Return the complete status of the collector."""
    problems = all_problems(agent)
    return PartStatus(
        part=agent.settings.part,
        state=state_of(agent, problems),
        ready=agent.is_ready,
        started_at_ms=started_at_ms,
        now_ms=now_ms,
        problems=problems,
        details=details(agent),
    )


class _AgentMetrics(Collector):
    """The agent's metrics for Prometheus, computed when they are requested."""

    def __init__(self, agent: Agent):
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """Return all metric families."""
        return self._families()

    def _families(self) -> Iterator[Metric]:
        agent, counters = self._agent, self._agent.registry.counters
        for name, text in (
            ("lines", "Lines committed"),
            ("bytes", "Bytes of files committed"),
        ):
            yield CounterMetricFamily(f"millrace_collector_{name}", text, counters[f"{name}_total"])
        events = CounterMetricFamily(
            "millrace_collector_events", "Things that happened to files", labels=["event"]
        )
        for name, value in sorted(counters.items()):
            if not name.endswith("_total"):
                events.add_metric([str(name)], value)
        yield events
        alive = living(agent)
        deleted_files, deleted_bytes = held_deleted(alive)
        for name, text, figure in (
            ("files", "Files known and read", len(alive)),
            ("held_files", "Old files that wait for the stream, because live lines come first",
             agent.feeder.held_files),
            ("open_files", "Open handles", len(agent.handles)),
            ("lag_bytes", "Bytes of files that are not committed", sum(g.lag_bytes for g in alive)),
            ("held_deleted_files", "Deleted files that are still being read", deleted_files),
            ("held_deleted_bytes", "Disk bytes of deleted files still being read", deleted_bytes),
            ("held_bytes", "Bytes of lines in memory", agent.outbox.bytes_held),
            ("busy_share", "Share of one core used in the last ten seconds", busy(agent)),
            ("ready", "1 if the collector reads and sends lines, else 0", int(agent.is_ready)),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"millrace_collector_{name}", text, figure)


def metrics(agent: Agent) -> bytes:
    """Return the text of `/metrics`."""
    registry = CollectorRegistry()
    registry.register(_AgentMetrics(agent))
    return generate_latest(registry)

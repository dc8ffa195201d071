"""Reports what the collector would read: matching files, their identity, positions and lag.

The check reads files and stored positions. It writes nothing, sends nothing and takes no lock, so
it can run while the collector runs.
"""

import asyncio
from collections.abc import Mapping

from collector.config.settings import CollectorSettings
from collector.identity.checkpoints import UnreadableCheckpoint, decode
from collector.identity.data_folder import DataFolder
from collector.identity.discovery import plan
from collector.identity.files import Walker
from collector.identity.generation import Generation
from collector.identity.handles import Handles
from collector.identity.registry import Registry
from collector.read.heads import HeadReport, report_head
from collector.read.reader import Reader
from collector.send.producer import Brokers
from collector.status import evidence_of, shown
from protocol.client.errors import ClientError
from protocol.errors import ApiError

REACH_TIMEOUT_MS = 5_000
UNREAD_MAX = 10
"""The most unread files that are named for each reason. Further files are only counted."""


async def check(settings: CollectorSettings, now_ms: int) -> dict[str, object]:
    """Return the report as plain JSON values."""
    instance = settings.section.instance or DataFolder(settings.data_dir).stored_instance()
    stored, reached, why = await _stored(settings, instance)
    names = iter(range(1 << 30))
    registry = Registry(settings.section.inputs, settings.home, lambda: f"new-{next(names)}")
    problems = []
    for generation, value in stored.items():
        try:
            registry.restore([decode(generation, value)])
        except UnreadableCheckpoint as error:
            problems.append(f"position of {generation}: {error}")
    walker = Walker(plan(settings.section.inputs, settings.home))
    scan = await asyncio.to_thread(walker.scan)
    handles = Handles(settings.section.open_files)
    reader = Reader(registry, handles, lambda generation: 1 << 20, lambda section: None)
    reader.judge(scan, now_ms)
    heads = {known.name: report_head(known) for known in _living(registry)}
    return {
        "instance": instance,
        "broker": {"address": settings.bootstrap_servers, "reached": reached, "reason": why},
        "files": [
            _row(known, heads[known.name], is_stored=known.name in stored)
            for known in _living(registry)
        ],
        "problems": [
            *problems,
            *scan.problems,
            *map(shown, scan.passed[:UNREAD_MAX]),
            *_unread(registry, heads),
            *_unroutable(registry),
        ],
    }


async def _stored(
    settings: CollectorSettings, instance: str | None
) -> tuple[dict[str, bytes], bool, str | None]:
    """Return the stored positions, whether a broker answered, and why they could not be read."""
    brokers = Brokers(settings, "millrace-collector-check")
    try:
        await brokers.reach(REACH_TIMEOUT_MS)
        if instance is None:
            return {}, True, "no collector has run here yet"
        async with asyncio.timeout(30):
            return (await brokers.read_positions(instance)).values, True, None
    except TimeoutError:
        return {}, False, "the stored positions could not be read in time"
    except (ClientError, ApiError) as error:
        return {}, False, str(error)
    finally:
        await brokers.close(1)


def _living(registry: Registry) -> list[Generation]:
    alive = [g for g in registry.generations.values() if not g.state.has_ended]
    return sorted(alive, key=lambda generation: generation.path)


def _unroutable(registry: Registry) -> list[str]:
    """Return a message for each file that the collector would not read because it has no topic."""
    found = [generation for generation in _living(registry) if generation.unroutable]
    told = [f"{shown(one.path)}: {one.unroutable}" for one in found[:UNREAD_MAX]]
    more = len(found) - len(told)
    return [*told, f"{more} more files have no topic"] if more else told


def _unread(registry: Registry, heads: Mapping[str, HeadReport | None]) -> list[str]:
    """Return a message for each file of which the collector would send nothing, with the reason.

    If there are more than UNREAD_MAX such files, the last message says how many more.
    """
    found = [
        f"{shown(known.path)}: {head.problem}"
        for known in _living(registry)
        if (head := heads[known.name]) is not None and head.problem is not None
    ]
    more = len(found) - UNREAD_MAX
    return [*found[:UNREAD_MAX], f"{more} more files are not read"] if more > 0 else found


def _row(generation: Generation, head: HeadReport | None, *, is_stored: bool) -> dict[str, object]:
    return {
        "path": shown(generation.path),
        "topic": generation.topic,
        "key": shown(generation.record_key),
        "device": generation.file.device,
        "inode": generation.file.inode,
        "generation": generation.name if is_stored else None,
        "verdict": None if generation.verdict is None else str(generation.verdict),
        "state": str(generation.state),
        "content": None if head is None else head.content,
        "size_bytes": generation.size,
        "position": generation.position,
        "lag_bytes": generation.lag_bytes,
        "lines": generation.lines,
        "evidence": evidence_of(generation),
        "lost_possible": generation.lost_possible,
    }

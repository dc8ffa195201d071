"""Decides whether to clean a compacted log, plans the cleaning, and adopts its result.

These functions run in the loop. A thread does the work in between (`cleaner`) and changes no object
that the log uses. `Log.cleaning` is the job that is still valid.
"""

from __future__ import annotations

from broker.storage.cleaner import CleaningJob
from broker.storage.compaction import Dirt, dirt_of, plan_of
from broker.storage.disk import DiskFile
from broker.storage.dropped import DroppedFiles
from broker.storage.log import Log
from broker.storage.swap import swap


def dirt_in(log: Log, now_ms: int) -> Dirt | None:
    """Return the part of the log that a cleaning would process; None if cleaning is not worthwhile
    or not allowed."""
    if not log.config.is_compacted or log.keeps_segments:
        return None
    limit_offset = min(log.last_stable_offset, log.recovery_point)
    return dirt_of(log.segments, log.config, log.cleaned_offset, limit_offset, now_ms)


def plan_cleaning(log: Log, now_ms: int, map_bytes: int) -> CleaningJob | None:
    """Plan one cleaning that uses at most `map_bytes` of memory for keys, and return its job.

    Returns None if the log needs no cleaning, or must not be cleaned now. Until `adopt_cleaned` or
    `cleaning_failed` is called with the job, no second cleaning begins and retention deletes no
    segment of this log.
    """
    found = dirt_in(log, now_ms)
    if found is None:
        return None
    state, folder = log.producer_state, log.folder
    plan = plan_of(folder, log.segments, log.config, found, state, map_bytes, now_ms)
    log.segments.unload_cold(found.segments)
    # Everything below the first dirty offset is clean. Record that, so that missing offsets below
    # it are not taken for damage.
    log.cleaned_offset = max(log.cleaned_offset, found.first_dirty_offset)
    log.cleaning = CleaningJob(log.disk, plan)
    return log.cleaning


def adopt_cleaned(log: Log, job: CleaningJob, now_ms: int) -> DroppedFiles:
    """Use the segments of a committed job. The caller must remove the files of the old segments.

    On DiskError the remaining groups of segments stay in use, uncleaned.
    """
    cleaning_failed(log, job)
    paths: list[str] = []
    held: list[DiskFile] = []
    for group in job.done:
        paths += swap(log.disk, group.old, group.new)
        held += log.segments.replace(group.old, group.new)
        for segment in group.old:
            log.producer_files.dropped(segment)
    log.cleaned_offset = job.end_offset
    due_ms = now_ms + log.config.file_delete_delay_ms
    return DroppedFiles(log.disk, paths, held=held, due_ms=due_ms)


def cleaning_failed(log: Log, job: CleaningJob) -> None:
    """Give up the job. The log is unchanged."""
    assert job is log.cleaning, "a log has one cleaning at a time"
    log.cleaning = None

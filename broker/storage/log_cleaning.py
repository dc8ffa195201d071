"""The cleaning of a compacted log: when it is worth while, its plan, and what comes of it.

Floor: storage. Here is what the loop does; a thread does the work in between (`cleaner`), and
changes nothing that the log knows of. Whether a job still counts, `Log.cleaning` says.
"""

from __future__ import annotations

from broker.storage.cleaner import CleaningJob
from broker.storage.compaction import Dirt, dirt_of, plan_of
from broker.storage.disk import DiskFile
from broker.storage.dropped import DroppedFiles
from broker.storage.log import Log
from broker.storage.swap import swap


def dirt_in(log: Log, now_ms: int) -> Dirt | None:
    """What a cleaning would go through; None when it is not worth while or not allowed."""
    if not log.config.is_compacted or log.keeps_segments:
        return None
    limit_offset = min(log.last_stable_offset, log.recovery_point)
    return dirt_of(log.segments, log.config, log.cleaned_offset, limit_offset, now_ms)


def plan_cleaning(log: Log, now_ms: int, map_bytes: int) -> CleaningJob | None:
    """The work of one cleaning, in at most so much memory for keys; None when there is none.

    Until `adopt_cleaned` or `cleaning_failed` is called with it there is no second one, and
    retention waits.
    """
    found = dirt_in(log, now_ms)
    if found is None:
        return None
    state, folder = log.producer_state, log.folder
    plan = plan_of(folder, log.segments, log.config, found, state, map_bytes, now_ms)
    log.segments.unload_cold(found.segments)
    # Trivially true of what was not there; that it is stated allows for missing offsets.
    log.cleaned_offset = max(log.cleaned_offset, found.first_dirty_offset)
    log.cleaning = CleaningJob(log.disk, plan)
    return log.cleaning


def adopt_cleaned(log: Log, job: CleaningJob, now_ms: int) -> DroppedFiles:
    """Take over the segments of a committed job; the old ones' files are to be removed.

    On DiskError the groups that were not reached stay as they were.
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
    """The job came to nothing; the log is as it was."""
    assert job is log.cleaning, "a log has one cleaning at a time"
    log.cleaning = None

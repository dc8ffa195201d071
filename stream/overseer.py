"""Watches over the JVM: ends one that stands still, and keeps what one has ended over.

Two threads have it count: that of the batches, and that of recounts. A recount keeps count of its
own tries, so that a batch is not to answer for what a recount met; where either may be at fault,
the batch is tried again alone.
"""

import logging
import subprocess
from collections.abc import Callable

from pyspark import SparkContext

from protocol.log import fields
from stream.batch_writer import BatchWriter
from stream.quarantine.bisection import places
from stream.quarantine.in_hand import Hand
from stream.quarantine.search import BLAME_BELIEVED, BLAME_ENDED, BLAME_KILLED, blame_of, size_of

JVM_EXIT_S = 5.0

logger = logging.getLogger(__name__)


class JvmGone(Exception):
    """The JVM does not answer any more."""


class Overseer:
    """`recount` is the hand of recounts; `give_up_recount` strikes out the one that it holds."""

    def __init__(self, recount: Hand, give_up_recount: Callable[[str], None]) -> None:
        self._recount = recount
        self._give_up_recount = give_up_recount

    def end_jvm_that_stands_still(self, writer: BatchWriter) -> None:
        """Kill a JVM that counts one thing for too long; raises JvmGone when it did.

        A task that is busy within an expression hears of no cancellation.
        """
        held = writer.in_hand
        if held is not None and held.is_overdue:
            # A single line may have met a bad moment; to stand still over many takes a reason.
            is_one = size_of(held.part) == 1
            self._note(writer, BLAME_ENDED if is_one else BLAME_BELIEVED)
        else:
            held = self._recount.holds
            if held is None or not held.is_overdue:
                return
            self._give_up_recount("counting stood still")
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.proc.kill()
        raise JvmGone(f"it stood still over {places(held.part)}, and was killed")

    def note_end(self, writer: BatchWriter) -> None:
        """The JVM is gone: keep for the next start what it ended over."""
        blame = blame_of(jvm_exit_code())
        recounted = self._recount.to_blame
        if recounted is not None:
            logger.error("Java ended beside a recount", extra=fields(offsets=places(recounted)))
            if self._recount.blamed_by_error is not None:
                return
            # The recount waits until the batch has been counted without it.
            blame = min(blame, BLAME_KILLED)
        self._note(writer, blame)

    def _note(self, writer: BatchWriter, blame: int) -> None:
        try:
            part = writer.note_death(blame)
        except OSError as error:
            logger.error("cannot note what ended Java", extra=fields(why=error))
            return
        if part is not None:
            logger.error("Java ended while counting", extra=fields(offsets=places(part)))


def jvm_exit_code() -> int | None:
    """How the JVM exited, as `subprocess` says it; None where it has not, though it is silent."""
    gateway = SparkContext._gateway
    try:
        return None if gateway is None else int(gateway.proc.wait(JVM_EXIT_S))
    except subprocess.TimeoutExpired:
        return None

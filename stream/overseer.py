"""Watches the JVM: ends it if it hangs, and records what it was counting when it ended.

Two threads use the JVM to count: one counts batches, the other counts recounts. A recount has its
own number of tries, so that a batch is not taken for the cause of an end that a recount caused. If
both were counting when the JVM ended, the batch is tried again without a recount.
"""

import logging
import subprocess
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from protocol.log import fields
from stream.batch_writer import BatchWriter
from stream.quarantine.bisection import places
from stream.quarantine.failures import causes_of
from stream.quarantine.in_hand import Hand
from stream.quarantine.search import BLAME_BELIEVED, BLAME_ENDED, BLAME_KILLED, blame_of, size_of

JVM_EXIT_S = 5.0

_STOP_TIMED_OUT = "java.util.concurrent.TimeoutException"
"""Java's error if a query has not stopped within `spark.sql.streaming.stopTimeout`."""

logger = logging.getLogger(__name__)


class JvmGone(Exception):
    """The error when the JVM does not answer any more."""


def stop_query(query: StreamingQuery) -> bool:
    """Stop a query. Return False if it does not stop in time.

    A query stops late while it waits for a broker or for a batch. It then ends with the JVM, or at
    the next call. Nothing is lost, because a batch that is not stored is counted again.
    """
    try:
        query.stop()
    except Py4JJavaError as error:
        if causes_of(error)[0].name != _STOP_TIMED_OUT:
            raise
        logger.warning("the query has not stopped in time; probably it waits for a broker")
        return False
    return True


class Overseer:
    """Watches the JVM for a hang, and records the likely cause of its end.

    `recount` shows what is being recounted. `give_up_recount` cancels that recount for a reason.
    """

    def __init__(self, recount: Hand, give_up_recount: Callable[[str], None]) -> None:
        self._recount = recount
        self._give_up_recount = give_up_recount

    def end_jvm_that_stands_still(self, writer: BatchWriter) -> None:
        """Kill the JVM if it has been counting one part for too long, and raise JvmGone.

        Cancelling the job would not help, because a task inside an expression does not check for
        cancellation.
        """
        held = writer.in_hand
        if held is not None and held.is_overdue:
            # A single line is believed to be the cause only after a second hang, because the first
            # can be chance. For many lines one hang is enough, because the search that follows
            # tries each line again.
            is_one = size_of(held.part) == 1
            self._note(writer, BLAME_ENDED if is_one else BLAME_BELIEVED)
        else:
            held = self._recount.holds
            if held is None or not held.is_overdue:
                return
            self._give_up_recount("counting made no progress")
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.proc.kill()
        raise JvmGone(f"the JVM was killed, because it made no progress on {places(held.part)}")

    def note_end(self, writer: BatchWriter) -> None:
        """Record what the JVM was counting when it ended, for the next start of the driver."""
        blame = blame_of(jvm_exit_code())
        recounted = self._recount.to_blame
        if recounted is not None:
            logger.error(
                "Java ended while it counted for a recount", extra=fields(offsets=places(recounted))
            )
            if self._recount.blamed_by_error is not None:
                return
            # The next start counts the batch without a recount next to it. If the JVM ends again,
            # the batch is the cause.
            blame = min(blame, BLAME_KILLED)
        self._note(writer, blame)

    def _note(self, writer: BatchWriter, blame: int) -> None:
        try:
            part = writer.note_death(blame)
        except OSError as error:
            logger.error(
                "cannot store which offsets Java was counting when it ended",
                extra=fields(why=error),
            )
            return
        if part is not None:
            logger.error("Java ended while counting", extra=fields(offsets=places(part)))


def jvm_exit_code() -> int | None:
    """Return the exit code of the JVM, negative for a signal.

    None if the JVM still runs, or was never started.
    """
    gateway = SparkContext._gateway
    try:
        return None if gateway is None else int(gateway.proc.wait(JVM_EXIT_S))
    except subprocess.TimeoutExpired:
        return None

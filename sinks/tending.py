"""The thread that maintains the sinks between batches, until their driver ends."""

import logging
import threading
import weakref
from typing import Protocol

import pymysql
import redis

from sinks.errors import FencedWriter, LedgerMismatch, SinkUnavailable

logger = logging.getLogger(__name__)


class Tended(Protocol):
    """The object that the thread maintains; implemented by `sinks.store.Sinks`.

    `untended` is the unexpected error with which the last round ended; None if it succeeded.
    """

    untended: str | None

    def tend(self) -> None:
        """Do one round of maintenance between batches."""

    def rest(self) -> None:
        """Change nothing until the sinks are opened again."""


def start_tending(sinks: Tended, closed: threading.Event, every_s: float) -> threading.Thread:
    """Start the thread. It ends with its driver, even if `close` is not called."""
    thread = threading.Thread(
        target=_keep_tending,
        args=(weakref.ref(sinks), closed, every_s),
        name="sinks-tender",
        daemon=True,
    )
    thread.start()
    return thread


def tend_or_say(sinks: Tended) -> None:
    """Do one round of maintenance. Errors are only logged, because the next batch meets them too.

    The thread continues after every error, because no thread of the driver may end unnoticed.
    """
    try:
        sinks.tend()
        sinks.untended = None
    except SinkUnavailable as error:
        logger.debug("the sinks are not maintained until they answer: %s", error)
    except (FencedWriter, LedgerMismatch) as error:
        # The next batch meets the same error and ends this driver; change nothing until then.
        logger.info("this driver is no longer the writer of the sinks: %s", error)
        sinks.rest()
    except (pymysql.err.Error, redis.exceptions.RedisError) as error:
        logger.warning(
            "MySQL or Redis did not complete a round of maintenance; the next round repeats it: %s",
            error,
        )
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if sinks.untended != why:
            logger.error("the maintenance of the sinks fails: %s", why, exc_info=error)
        sinks.untended = why


def _keep_tending(of: "weakref.ref[Tended]", closed: threading.Event, every_s: float) -> None:
    while not closed.wait(every_s):
        sinks = of()
        if sinks is None:
            return
        tend_or_say(sinks)
        del sinks

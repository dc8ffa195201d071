"""The thread that tends the sinks between batches, for as long as their driver lives."""

import logging
import threading
import weakref
from typing import Protocol

import pymysql
import redis

from sinks.errors import Fenced, LedgerMismatch, SinkUnavailable

logger = logging.getLogger(__name__)


class Tended(Protocol):
    """What is tended; `sinks.store.Sinks`.

    `untended` says why the last round ended early, where nobody had thought of that.
    """

    untended: str | None

    def tend(self) -> None:
        """One round of what is done between batches."""

    def rest(self) -> None:
        """Leave everything as it is until opened again."""


def start_tending(sinks: Tended, closed: threading.Event, every_s: float) -> threading.Thread:
    """Tend from time to time; the thread ends with its driver, also with one that nobody closed."""
    thread = threading.Thread(
        target=_keep_tending,
        args=(weakref.ref(sinks), closed, every_s),
        name="sinks-tender",
        daemon=True,
    )
    thread.start()
    return thread


def tend_or_say(sinks: Tended) -> None:
    """One round; what goes wrong is said, and met again by the next batch.

    Whatever it is, the next round is tried: no thread of the driver may end unseen.
    """
    try:
        sinks.tend()
        sinks.untended = None
    except SinkUnavailable as error:
        logger.debug("not tended: %s", error)
    except (Fenced, LedgerMismatch) as error:
        # The next batch meets the same and ends this driver; until then, hands off.
        logger.info("no longer the writer: %s", error)
        sinks.rest()
    except (pymysql.err.Error, redis.exceptions.RedisError) as error:
        logger.warning("not tended: %s", error)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if sinks.untended != why:
            logger.error("not tended: %s", why, exc_info=error)
        sinks.untended = why


def _keep_tending(of: "weakref.ref[Tended]", closed: threading.Event, every_s: float) -> None:
    while not closed.wait(every_s):
        sinks = of()
        if sinks is None:
            return
        tend_or_say(sinks)
        del sinks

"""Reports the collector's state to its mill, in records of the topic `millrace.collectors`.

Only collectors with a trust group report. The mill cannot ask them for their status, because they
are on other hosts, often behind address translation. The problems of each report are logged when
they begin and end.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from collector.send.report_log import ReportLog
from collector.send.rights import NotAllowed
from collector.timing.schedule import DoublingWait
from protocol.background import report_failure
from protocol.client.errors import ClientError
from protocol.collector_report import REPORT_EVERY_MS, STOPPED, CollectorReport, encode
from protocol.errors import ApiError
from protocol.log import fields

RETRY_MS = 1_000  # first wait after a report that could not be sent
LAST_REPORT_MS = 2_000

logger = logging.getLogger(__name__)


MakeReport = Callable[[int], CollectorReport]
"""A function that takes the wall time in milliseconds and returns the report, without `skew_ms`."""


class Reporting:
    """Sends a report every REPORT_EVERY_MS after `start` was called."""

    def __init__(self, log: ReportLog):
        self.problem: str | None = None
        """The text about the right that is missing for reports; None if none is missing."""
        self._log = log
        self._skew_ms: int | None = None
        self._logged: frozenset[str] = frozenset()
        """The codes of the problems of the last report."""
        self._make_report: MakeReport | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, make_report: MakeReport) -> None:
        """Begin to report in the background."""
        self._make_report = make_report
        self._task = asyncio.create_task(self._run(make_report))
        self._task.add_done_callback(lambda task: report_failure(task, "reporting failed"))

    async def stop(self) -> None:
        """Send a last report, which says that the collector has stopped."""
        make_report = self._make_report
        if self._task is None or make_report is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_MS / 1000):
                await self._send(lambda now_ms: replace(make_report(now_ms), state=STOPPED))

    async def _run(self, make_report: MakeReport) -> None:
        backoff = DoublingWait(RETRY_MS, REPORT_EVERY_MS)
        while True:
            if await self._send(make_report):
                backoff.reset()
                await asyncio.sleep(REPORT_EVERY_MS / 1000)
            else:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _send(self, make_report: MakeReport) -> bool:
        """Send one report. Return False if it failed."""
        before_ms = _wall_ms()
        report = replace(make_report(before_ms), skew_ms=self._skew_ms)
        self._log_changes(report)
        try:
            appended_at_ms = await self._log.send(report.instance, encode(report), before_ms)
        except NotAllowed as error:
            self.problem = str(error)
        except (ClientError, ApiError) as error:
            logger.debug("could not send a report", extra=fields(reason=str(error)))
        else:
            self.problem = None
            if appended_at_ms is not None:
                # The brokers appended the report about half-way between request and response.
                self._skew_ms = appended_at_ms - (before_ms + _wall_ms()) // 2
            return True
        return False

    def _log_changes(self, report: CollectorReport) -> None:
        """Log which problems have begun and ended since the last report. On a host that only
        collects, the log is the only place that shows them without a question."""
        codes = frozenset(one.code for one in report.problems)
        for problem in report.problems:
            if problem.code not in self._logged:
                logger.warning("%s", problem.text, extra=fields(problem=problem.code))
        for code in sorted(self._logged - codes):
            logger.info("problem has ended", extra=fields(problem=code))
        self._logged = codes


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000

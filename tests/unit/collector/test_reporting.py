"""A collector of another host logs its problems, whether or not a report can be sent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from collector.reporting import Reporting
from collector.send.report_log import ReportLog
from protocol.client.errors import BrokerUnreachable
from protocol.collector_report import CollectorReport
from protocol.status import Problem
from tests.unit.monitor.views.test_collectors import report


class NoMill:
    """A mill that no report reaches."""

    async def send(self, *_: object) -> int | None:
        raise BrokerUnreachable("no broker answers")


def test_a_problem_is_logged_once_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reporting = Reporting(cast(ReportLog, cast(Any, NoMill())))
    away = Problem("broker", "no acknowledgement since 1")
    later = Problem("broker", "no acknowledgement since 2")
    full = Problem("unreadable", "a.log: the file waits")

    def said(*problems: Problem) -> list[tuple[str, str]]:
        def make_report(_: int) -> CollectorReport:
            return report("web-07", problems=problems)

        caplog.clear()
        assert not asyncio.run(reporting._send(make_report))
        return [(one.levelname, one.getMessage()) for one in caplog.records]

    assert said() == []
    assert said(away) == [("WARNING", away.text)]
    assert said(later) == []
    assert said(later, full) == [("WARNING", full.text)]
    assert said(full) == [("INFO", "problem has ended")]


def test_an_unexpected_error_is_given_to_the_loop() -> None:
    """Without that the mill would call the collector silent, and its log would not say why."""

    async def run() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))

        def make_report(_: int) -> CollectorReport:
            raise RuntimeError("a bug")

        reporting = Reporting(cast(ReportLog, cast(Any, NoMill())))
        reporting.start(make_report)
        while not seen:
            await asyncio.sleep(0)
        return seen

    (context,) = asyncio.run(asyncio.wait_for(run(), 10))
    assert (context["message"], str(context["exception"])) == ("reporting failed", "a bug")

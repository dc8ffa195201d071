"""The collector process, from reading its settings to the exit code.

The exit code is 0 after a clean stop or a complete one-shot run. It is 1 if the data folder is in
use or cannot be written, or a one-shot run is incomplete, and 2 for wrong settings. It is 5 if a
one-shot run waited too long for the brokers. It is 75 if another collector of the same instance has
taken over.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from enum import Enum

import uvloop
from pydantic import ValidationError

from collector.agent import Agent
from collector.amending import Amendment, amend
from collector.check import check
from collector.config.settings import CollectorSettings
from collector.identity.data_folder import DataFolder, InUse
from collector.once import OneShot
from collector.progress import reporter
from collector.status import metrics, part_status, report_of
from collector.timing.clock import ForwardClock
from protocol.log import configure, fields
from protocol.status import EXIT_FENCED
from protocol.status_http import StatusServer

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_SETTINGS = 2
EXIT_UNREACHABLE = 5

logger = logging.getLogger(__name__)


class Mode(Enum):
    """The task of the process."""

    RUN = "run"
    ONCE = "once"
    CHECK = "check"
    AMEND = "amend"


@dataclass(frozen=True, slots=True)
class Errand:
    """The task and arguments of the process.

    `wanted` names the files whose stored positions are changed. Without `execute`, the change is
    only shown.
    """

    mode: Mode
    amendment: Amendment = Amendment.FORGET
    wanted: str = ""
    execute: bool = False


def main(descriptor: int, errand: Errand) -> int:
    """Read the settings, perform the task, and return the exit code."""
    try:
        with os.fdopen(descriptor, "rb") as source:
            settings = CollectorSettings.model_validate_json(source.read())
    except (OSError, ValidationError) as error:
        configure("collector")
        logger.error("the settings are not valid: %s", error)
        return EXIT_SETTINGS
    configure(settings.part)
    if errand.mode is Mode.CHECK:
        _print(asyncio.run(check(settings, time.time_ns() // 1_000_000)))
        return EXIT_CLEAN
    folder = DataFolder(settings.data_dir)
    if errand.mode is Mode.AMEND and not errand.execute:
        # An amendment that is only shown needs no lock.
        instance = settings.section.instance or folder.stored_instance() or ""
        return _amend(settings, instance, errand)
    try:
        folder.lock()
    except (InUse, OSError) as error:
        logger.error("%s", error)
        return EXIT_FAILED
    try:
        instance = settings.section.instance or folder.instance()
        if errand.mode is Mode.AMEND:
            return _amend(settings, instance, errand)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, instance, errand.mode))
    finally:
        folder.unlock()


def _amend(settings: CollectorSettings, instance: str, errand: Errand) -> int:
    now_ms = time.time_ns() // 1_000_000
    what, wanted = errand.amendment, errand.wanted
    _print(asyncio.run(amend(settings, instance, wanted, what, now_ms, execute=errand.execute)))
    return EXIT_CLEAN


def _print(report: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


async def _serve(settings: CollectorSettings, instance: str, mode: Mode) -> int:
    """Run the agent until a signal arrives, or to the end of the files."""
    patience_ms = settings.patience_ms if mode is Mode.ONCE else None
    agent = Agent(settings, instance, ForwardClock(), patience_ms)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    failures: list[str] = []

    def fail(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        # This is an error in our own code. Stop, so that the next start continues from the stored
        # positions.
        failures.append(str(context.get("exception") or context.get("message")))
        loop.default_exception_handler(context)
        agent.stop()

    loop.set_exception_handler(fail)
    started_at_ms = agent.clock()
    server = StatusServer(
        settings.status.host,
        settings.status.port,
        lambda: part_status(agent, started_at_ms, agent.clock()),
        lambda: metrics(agent),
    )
    if mode is Mode.RUN:
        try:
            await server.start()
        except OSError as error:
            address = f"{settings.status.host}:{settings.status.port}"
            logger.error(
                "cannot listen for status requests", extra=fields(address=address, reason=error)
            )
            return EXIT_FAILED
    code = EXIT_CLEAN
    try:
        if mode is Mode.RUN and settings.section.group is not None:
            agent.reporting.start(lambda now_ms: report_of(agent, started_at_ms, now_ms))
        if await agent.start():
            if mode is Mode.ONCE:
                incomplete = await OneShot(agent, reporter(sys.stdout)).run()
                code = EXIT_FAILED if incomplete else EXIT_CLEAN
            else:
                await agent.run()
        elif mode is Mode.ONCE:
            code = EXIT_FAILED
    finally:
        await agent.finish()
        await agent.reporting.stop()
        await agent.close()
        await server.close()
    logger.info("collector stopped")
    if agent.is_fenced:
        return EXIT_FENCED
    if agent.gave_up is not None:
        logger.error("collector gave up: %s", agent.gave_up)
        return EXIT_UNREACHABLE
    return EXIT_FAILED if failures else code

"""Follows changes of the configuration file, so that pages describe the present inputs and metrics.

Only the appliance can parse the file, so the monitor runs a command of the appliance that prints
the monitor's part as JSON. A file with faults changes nothing; the supervisor reports its faults.
"""

import asyncio
import logging
import time

from pydantic import ValidationError

from monitor.config.settings import MonitorReloadSettings, MonitorSettings, MonitorUpdate
from protocol.log import fields
from protocol.own_command import CommandFailed, run_command
from protocol.settling import LOOK_EVERY_S, Settling, known_signature, signature_of

COMMAND_S = 60.0

logger = logging.getLogger(__name__)


class Configured:
    """The inputs and metrics in effect, `now`."""

    def __init__(self, settings: MonitorSettings) -> None:
        self.now = MonitorUpdate(inputs=settings.inputs, metrics=settings.metrics)


class UpdateWatch:
    """Watches the file, and replaces what is in effect when the file changes."""

    def __init__(self, configured: Configured, reload: MonitorReloadSettings) -> None:
        self._configured = configured
        self._reload = reload
        known = known_signature(reload.file, reload.sha256)
        self._settling = Settling(known, reload.settled_ms / 1000)

    async def run(self) -> None:
        """Watch the file for as long as the monitor runs."""
        while True:
            await self.look(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, now_s: float) -> None:
        """Apply the file if it has changed and is no longer being written."""
        reload = self._reload
        if not self._settling.look(signature_of(reload.file), now_s):
            return
        try:
            said = await run_command(reload.command, COMMAND_S)
            self._configured.now = MonitorUpdate.model_validate_json(said)
        except (CommandFailed, ValidationError) as error:
            logger.warning(
                "changed inputs and metrics are not shown; the earlier ones stay",
                extra=fields(file=reload.file, why=error),
            )

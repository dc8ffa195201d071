"""Follows changes of the configuration file while the collector runs, and applies new inputs.

Only the appliance can parse the file. So this module runs a command of the appliance, which prints
the collector's section as JSON. If a change cannot be applied, the inputs stay as they are, and the
reason is reported.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from collector.config.settings import CollectorSection, CollectorUpdate, ReloadSettings
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields
from protocol.own_command import CommandFailed, run_command
from protocol.settling import (
    LOOK_EVERY_S,
    Settling,
    known_signature,
    sha256_of,
    signature_of,
)

COMMAND_S = 60.0
AGAIN_S = 5.0
"""The wait before a change is applied again after the cluster refused it or did not answer."""

logger = logging.getLogger(__name__)

TakeOver = Callable[[CollectorUpdate], Awaitable[None]]
"""A function that applies new inputs. If it raises ClientError or ApiError, nothing has changed."""


class UnreadableConfig(Exception):
    """The error for a file that is not a valid configuration. Its text lists the faults."""


class Reloading:
    """Applies changes of the configuration file.

    `sha256` is the checksum of the applied content. `problem` says why the last change could not be
    applied; None if it was applied.
    """

    def __init__(
        self, settings: ReloadSettings, running: CollectorUpdate, take_over: TakeOver
    ) -> None:
        self.sha256 = settings.sha256
        self.problem: str | None = None
        self._settings = settings
        self._running = running
        self._take_over = take_over
        self._again_s: float | None = None
        known = known_signature(settings.file, settings.sha256)
        self._settling = Settling(known, settings.settled_ms / 1000)

    async def run(self) -> None:
        """Watch the file for as long as the collector runs."""
        while True:
            await self.look(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, now_s: float) -> None:
        """Apply the file if it has changed, or if a failed change must be tried again."""
        is_due = self._again_s is not None and now_s >= self._again_s
        if not self._settling.look(signature_of(self._settings.file), now_s) and not is_due:
            return
        self._again_s = None
        try:
            sha256 = sha256_of(self._settings.file)
            update = await ask(self._settings.command)
            if later := later_keys(self._running.section, update.section):
                raise UnreadableConfig(
                    f"{', '.join(later)} changed: restart the collector to apply this"
                )
            if update != self._running:
                await self._take_over(update)
        except UnreadableConfig as error:
            self._say(str(error))
        except (ClientError, ApiError) as error:
            self._again_s = now_s + AGAIN_S
            self._say(str(error))
        else:
            self._running = update
            self.sha256, self.problem = sha256, None

    def _say(self, why: str) -> None:
        self.problem = f"{self._settings.file}: {why}; the earlier inputs are still read"
        logger.warning(
            "changed inputs are not applied; the earlier inputs are still read",
            extra=fields(why=why),
        )


async def ask(command: tuple[str, ...]) -> CollectorUpdate:
    """Run a command that prints a CollectorUpdate as JSON, or the faults on standard error.

    Raises UnreadableConfig.
    """
    try:
        said = await run_command(command, COMMAND_S)
    except CommandFailed as error:
        raise UnreadableConfig(str(error)) from error
    try:
        return CollectorUpdate.model_validate_json(said)
    except ValidationError as error:
        raise UnreadableConfig(str(error)) from error


def later_keys(section: CollectorSection, wanted: CollectorSection) -> list[str]:
    """Return the changed keys that take effect only at the next start: all except the inputs.

    A restart is also needed to add the first input or to remove the last input, because a collector
    runs only if there are inputs.
    """
    keys = [
        f"collector.{key}"
        for key in CollectorSection.model_fields
        if key != "inputs" and getattr(section, key) != getattr(wanted, key)
    ]
    if bool(section.inputs) != bool(wanted.inputs):
        keys.append("collector.inputs")
    return keys

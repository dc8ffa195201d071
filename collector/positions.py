"""Stored positions: read back once at the start, written as acknowledgements come in.

Floor: between `registry` and `agent`. A position is written after the lines before it are
acknowledged, at most once a second and generation, and at stop. So a kill costs at most the last
stretch, which is sent twice, and never a line.
"""

import asyncio
import logging

from collector.checkpoints import (
    Checkpoint,
    UnreadableCheckpoint,
    decode,
    encode,
    encode_key,
)
from collector.config import POSITIONS_INTERVAL_MS
from collector.producer import Brokers
from collector.registry import Registry
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields

FORGET_TICK_MS = 60_000

logger = logging.getLogger(__name__)


class Positions:
    """The position records of one instance."""

    def __init__(self, brokers: Brokers, registry: Registry, instance: str, forget_after_ms: int):
        self.problems: dict[str, str] = {}
        self._brokers = brokers
        self._registry = registry
        self._instance = instance
        self._forget_after_ms = forget_after_ms
        self._forget_at_ms = 0
        self._saving: asyncio.Task[None] | None = None

    async def read(self) -> list[Checkpoint]:
        """All that is stored; a record that cannot be read is reported and left out."""
        found: list[Checkpoint] = []
        for generation, value in (await self._brokers.read_positions(self._instance)).items():
            try:
                found.append(decode(generation, value))
            except UnreadableCheckpoint as error:
                self.problems[f"positions {generation}"] = f"position of {generation}: {error}"
                logger.error(
                    "position not readable", extra=fields(generation=generation, reason=str(error))
                )
        return found

    def save_in_background(self, now_ms: int) -> None:
        """Write what is due, unless the write before this is still on its way."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._try_save(now_ms))

    async def finish(self, now_ms: int, deadline_ms: int) -> None:
        """Write all that moved, for the last time."""
        try:
            async with asyncio.timeout(max(1.0, (deadline_ms - now_ms) / 1000)):
                if self._saving is not None:
                    await self._saving
                await self._save(now_ms, everything=True)
        except (ClientError, ApiError, TimeoutError) as error:
            logger.warning(
                "positions not stored at stop; the last lines may be sent again",
                extra=fields(reason=str(error) or "no answer in time"),
            )

    async def _try_save(self, now_ms: int) -> None:
        try:
            await self._save(now_ms, everything=False)
            self.problems.pop("positions", None)
        except (ClientError, ApiError) as error:
            self.problems["positions"] = f"positions are not stored: {error}"

    async def _save(self, now_ms: int, *, everything: bool) -> None:
        due = [
            (generation, generation.changes)
            for generation in self._registry.generations.values()
            if generation.changes
            and (everything or generation.saved_at_ms + POSITIONS_INTERVAL_MS <= now_ms)
        ]
        records: dict[bytes, bytes | None] = {}
        for generation, _ in due:
            generation.saved_at_ms = now_ms
            key = encode_key(self._instance, generation.name)
            records[key] = encode(generation.checkpoint(now_ms))
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + FORGET_TICK_MS
            for name in self._registry.forget(now_ms, self._forget_after_ms):
                records[encode_key(self._instance, name)] = None
        if records:
            await self._brokers.write_positions(records)
        for generation, changes in due:
            generation.changes -= changes

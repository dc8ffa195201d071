"""Make this process the only collector of an instance, and notice a rival.

Taking over an instance fences the process that had it. A process takes over again after it was
fenced, but only once: if a rival fences it again within a short time, this process ends. A process
that was fenced only because it had paused for too long finds no other claim than its own.
"""

import logging
import random
import uuid
from collections.abc import Awaitable, Callable

from collector.config.settings import (
    CLAIM_WAIT_MS,
    FENCED_AGAIN_MS,
    GROUP_RETRY_MS,
    RETRY_MS,
    SPREAD_INTERVALS,
    CollectorSection,
)
from collector.send.claims import Claim
from collector.send.positions import StoredPosition
from collector.send.producer import Brokers
from collector.timing.schedule import DoublingWait
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.log import fields

logger = logging.getLogger(__name__)


def first_wait_ms(section: CollectorSection, rng: random.Random) -> int:
    """Return how long to wait before the first attempt to take over an instance.

    Collectors of a group can start together, for example after a power failure. The interval of
    their commits says how many they are, so the wait is a random part of twice this interval. A
    start costs the brokers five milliseconds or more.
    """
    return 0 if section.group is None else rng.randint(0, _spread_ms(section))


def start_wait(section: CollectorSection, rng: random.Random) -> DoublingWait:
    """Return the waits between attempts to take over an instance."""
    if section.group is None:
        return DoublingWait(*RETRY_MS)
    least_ms, most_ms = GROUP_RETRY_MS
    return DoublingWait(least_ms, most_ms, rng, max(least_ms, _spread_ms(section)))


def _spread_ms(section: CollectorSection) -> int:
    return min(SPREAD_INTERVALS * section.commit_interval, GROUP_RETRY_MS[1])


class Tenure:
    """The claims to an instance that one process on one host has made."""

    def __init__(self, brokers: Brokers, instance: str, host: str, clock: Callable[[], int]):
        self._brokers = brokers
        self._instance = instance
        self._host = host
        self._clock = clock
        self._claim = Claim(uuid.uuid4().hex, 0)
        self._held: Claim | None = None
        self._rival_at_ms: int | None = None

    @property
    def is_held(self) -> bool:
        """True if the process has taken over the instance at least once."""
        return self._held is not None

    async def take_over(self) -> StoredPosition:
        """Fence the previous owner, and return the stored positions.

        Raises ClientError or ApiError.
        """
        await self._brokers.reach()
        await self._brokers.prepare()
        self._claim = self._claim._replace(number=self._claim.number + 1)
        stored = await self._brokers.take_over(self._instance, self._claim, self._host, self._held)
        self._held = self._claim
        if stored.rival is not None:
            self._rival_at_ms = self._clock()
        return stored

    async def has_rival(
        self, pause: Callable[[int], Awaitable[None]], is_stopping: Callable[[], bool]
    ) -> bool:
        """Wait for a claim of the recent rival, and tell whether it has taken the instance back."""
        rival_at_ms = self._rival_at_ms
        if rival_at_ms is None or self._clock() - rival_at_ms >= FENCED_AGAIN_MS:
            return False
        deadline_ms = self._clock() + CLAIM_WAIT_MS
        while not is_stopping() and self._clock() < deadline_ms:
            try:
                stored = await self._brokers.read_positions(self._instance, self._held)
            except (ClientError, ApiError) as error:
                logger.warning(
                    "could not look for a rival collector", extra=fields(reason=str(error))
                )
            else:
                if stored.rival is not None:
                    return True
            await pause(RETRY_MS[0])
        return False

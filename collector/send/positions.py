"""Position records: read at the start, and written with each transaction.

A transaction has consecutive lines of a file and the position at which they end, so either both
become visible or neither. Lines that do not fit wait for the next transaction.

A position is always the start of a line, and with multi-line events the end of an event. When a
transaction is cut, it holds all lines of a read queue that were given out, or none of them. In the
second case the position of that queue stays out as well.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from collector.identity.checkpoints import (
    Checkpoint,
    UnreadableCheckpoint,
    decode,
    decode_key,
    encode,
    encode_key,
)
from collector.identity.generation import Generation
from collector.identity.registry import Registry
from collector.send.claims import Claim, claim_key, decode_claim
from protocol.log import fields

FORGET_TICK_MS = 60_000

logger = logging.getLogger(__name__)

Records = dict[bytes, bytes | None]
"""Position records by key; None forgets a generation."""


class StoredPosition(NamedTuple):
    """What the topic of positions holds about one instance.

    `rival` is the process that took over the instance after the claim given to `gather`; None if
    there is none.
    """

    values: dict[str, bytes]
    rival: str | None


def gather(
    instance: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    since: Claim | None = None,
) -> StoredPosition:
    """Return the last value per generation of one instance; `records` are in order."""
    found: dict[str, bytes] = {}
    rival: str | None = None
    is_since = False
    for key, value in records:
        if key is None:
            continue
        if key == claim_key(instance):
            claim = None if value is None else decode_claim(value)
            is_since |= claim == since
            if claim is not None and since is not None and is_since and claim.owner != since.owner:
                rival = claim.owner
            continue
        generation = decode_key(key, instance)
        if generation is None:
            continue
        if value is None:
            found.pop(generation, None)
        else:
            found[generation] = value
    return StoredPosition(found, rival)


class Positions:
    """The position records of one instance."""

    def __init__(self, registry: Registry, instance: str, forget_after_ms: int):
        self.problems: dict[str, str] = {}
        self._registry = registry
        self._instance = instance
        self._forget_after_ms = forget_after_ms
        self._forget_at_ms = 0
        self._cut: list[Generation] = []
        self._forgotten: set[str] = set()
        self._cut_forgotten: frozenset[str] = frozenset()

    def decoded(self, values: Mapping[str, bytes]) -> list[Checkpoint]:
        """Decode everything stored; an unreadable record is reported and left out."""
        found: list[Checkpoint] = []
        for generation, value in values.items():
            try:
                found.append(decode(generation, value))
            except UnreadableCheckpoint as error:
                self.problems[f"positions {generation}"] = f"position of {generation}: {error}"
                logger.error(
                    "position not readable", extra=fields(generation=generation, reason=str(error))
                )
        return found

    @property
    def has_changes(self) -> bool:
        """Whether a cut would return records."""
        return bool(self._registry.changed or self._forgotten)

    def tick(self, now_ms: int) -> None:
        """Forget generations that ended long ago. This happens only at intervals."""
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + FORGET_TICK_MS
            self._forgotten.update(self._registry.forget(now_ms, self._forget_after_ms))

    def cut(self, now_ms: int, is_covered: Callable[[Generation], bool]) -> Records:
        """Return the records of everything that changed, for the transaction being ended.

        A generation whose lines are not in it (`is_covered` returns False) keeps its record for the
        next one.
        """
        records: Records = {}
        changed = self._registry.changed
        for name in sorted(changed):
            generation = self._registry.generations.get(name)
            if generation is not None and not is_covered(generation):
                continue
            changed.discard(name)
            if generation is not None:
                self._cut.append(generation)
                records[encode_key(self._instance, name)] = encode(generation.cut(now_ms))
        self._cut_forgotten = frozenset(self._forgotten)
        for name in sorted(self._cut_forgotten):
            records[encode_key(self._instance, name)] = None
        return records

    def committed(self) -> None:
        """Note that the transaction of the last `cut` was committed."""
        for generation in self._cut:
            generation.committed()
        self._cut.clear()
        self._forgotten -= self._cut_forgotten

    def given_up(self) -> None:
        """Note that the transaction was aborted, so the next `cut` returns its records again."""
        for generation in self._cut:
            generation.given_up()
        self._cut.clear()

"""Position records: read at the start, and written with each transaction.

A transaction holds consecutive lines of a file and the position at which they end. So either both
become visible or neither. Lines that do not fit wait for the next transaction.

A position is always the start of a line; with multi-line events it is the end of an event. A
transaction holds all handed-out lines of a queue or none of them. If it holds none, it does not
hold the position of that queue's files either.
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
"""Position records by key. The value None deletes the record of a generation."""


class StoredPosition(NamedTuple):
    """The stored positions of one instance, by the name of the generation.

    `rival` is the process that took over the instance after the claim passed to `gather`; None if
    there is no such process.
    """

    values: dict[str, bytes]
    rival: str | None


def gather(
    instance: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    since: Claim | None = None,
) -> StoredPosition:
    """Return the last value of each generation of one instance. `records` are in offset order."""
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
    """The position records of one collector instance."""

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
        """Decode all stored positions. An unreadable record is reported and left out."""
        found: list[Checkpoint] = []
        for generation, value in values.items():
            try:
                found.append(decode(generation, value))
            except UnreadableCheckpoint as error:
                self.problems[f"positions {generation}"] = f"position of {generation}: {error}"
                logger.error(
                    "a stored position cannot be read and is ignored",
                    extra=fields(generation=generation, reason=str(error)),
                )
        return found

    @property
    def has_changes(self) -> bool:
        """True if `cut` would return any records."""
        return bool(self._registry.changed or self._forgotten)

    def tick(self, now_ms: int) -> None:
        """Forget files that ended long ago. Between two searches at least FORGET_TICK_MS pass."""
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + FORGET_TICK_MS
            self._forgotten.update(self._registry.forget(now_ms, self._forget_after_ms))

    def cut(self, now_ms: int, is_covered: Callable[[Generation], bool]) -> Records:
        """Return the changed position records for the transaction that is about to be committed.

        If `is_covered` returns False for a file, its lines are not in the transaction. Then its
        record waits for the next transaction.
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
        """Handle the commit of the transaction with the records of the last `cut`."""
        for generation in self._cut:
            generation.committed()
        self._cut.clear()
        self._forgotten -= self._cut_forgotten

    def given_up(self) -> None:
        """Handle the abort of the transaction. The next `cut` returns its records again."""
        for generation in self._cut:
            generation.given_up()
        self._cut.clear()

"""Pending checks of whether a producer may write in a transaction, and the events that invalidate
their answers.

This module is pure. The coordinator of a transaction can be another broker. Its answer is true when
it is sent, but the transaction can end before the batch is appended. In this case the batch would
open a transaction that never ends. So the caller takes a guard before it asks the coordinator, and
a marker of the producer in this log breaks the guard (KIP-890).
"""

from __future__ import annotations


class VerificationGuard:
    """The guard of one check: the answer is valid as long as the guard is not broken.

    Take the guard before you send the question. Check `is_broken` in the iteration of the event
    loop in which you append the batch, because a marker can arrive between the answer and the
    append.
    """

    __slots__ = ("is_broken",)

    def __init__(self) -> None:
        self.is_broken = False


class Verifications:
    """All guards of one log."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, list[VerificationGuard]] = {}
        """The guards of each producer, by producer id.

        If the caller never forgets a guard, the marker removes it. The coordinator sends a marker
        to every partition that it has confirmed.
        """

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(self, producer_id: int) -> VerificationGuard:
        """Take a guard before asking about this producer."""
        guard = VerificationGuard()
        self._guards.setdefault(producer_id, []).append(guard)
        return guard

    def forget(self, producer_id: int, guard: VerificationGuard) -> None:
        """Remove a guard, because no batch will be appended after the answer to its check."""
        guards = self._guards.get(producer_id, [])
        if guard in guards:
            guards.remove(guard)
            if not guards:
                del self._guards[producer_id]

    def void(self, producer_id: int) -> None:
        """Break all guards of a producer, because a transaction of this producer has ended in this
        log."""
        for guard in self._guards.pop(producer_id, ()):
            guard.is_broken = True

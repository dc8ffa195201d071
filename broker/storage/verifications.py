"""Questions under way whether producers may write in a transaction, and what makes answers void.

Floor: storage. Pure. The coordinator of a transaction may be another broker. What it answers is
true when it answers; the transaction may end before the batch is appended that was asked about,
and that batch would open a transaction which nobody ends. So whoever asks takes a guard first, and
a marker of the producer, here in the log, breaks it (KIP-890).
"""

from __future__ import annotations


class Guard:
    """One question's: what is answered to it holds while this is whole.

    Take the guard before you send the question. Check `is_broken` in the turn of the loop in which
    you append the batch, because a marker can arrive between the answer and the append.
    """

    __slots__ = ("is_broken",)

    def __init__(self) -> None:
        self.is_broken = False


class Verifications:
    """All guards of one log."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, list[Guard]] = {}
        """By producer id. Those that are forgotten by nobody go with the marker, which comes to
        every partition that a coordinator has vouched for."""

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def begin(self, producer_id: int) -> Guard:
        """A question about this producer is about to be asked."""
        guard = Guard()
        self._guards.setdefault(producer_id, []).append(guard)
        return guard

    def forget(self, producer_id: int, guard: Guard) -> None:
        """Nothing will be appended on the answer to this question."""
        guards = self._guards.get(producer_id, [])
        if guard in guards:
            guards.remove(guard)
            if not guards:
                del self._guards[producer_id]

    def void(self, producer_id: int) -> None:
        """A transaction of the producer has ended here: answers of before hold no more."""
        for guard in self._guards.pop(producer_id, ()):
            guard.is_broken = True

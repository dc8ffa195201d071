"""One connection on which a follower fetches, as the leader keeps it.

Room: fetch. Pure. A follower has two lines: one for the partitions that are in sync or have caught
up, and one for those that catch up (decision 0131). `replica_fetch` owns and serves them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker.replicas.replica import Replica
from broker.replication.follower_session import FollowerSession
from broker.replication.follower_steps import PartitionId
from broker.sessions.call import Call


class LineOwner(Protocol):
    """The code that serves lines (`replica_fetch`)."""

    def forget(self, line: FollowerLine) -> None:
        """Remove a line whose connection is closed."""

    def make_way(self, line: FollowerLine) -> None:
        """End the wait of a fetch now."""


class FollowerLine:
    """One connection of a follower: its session, and its waiting fetch, if any."""

    __slots__ = (
        "asked_again",
        "call",
        "deadline_ms",
        "fetches",
        "hasty_until_ms",
        "is_wake_wanted",
        "max_bytes",
        "owed",
        "session",
    )

    def __init__(self, fetches: LineOwner, session: FollowerSession) -> None:
        self.fetches = fetches
        self.session = session
        self.call: Call | None = None
        """The call of the newest fetch."""
        self.max_bytes = 0
        self.deadline_ms = 0
        self.hasty_until_ms = 0
        """Until then a fetch waits only briefly, because the next one names new partitions."""
        self.is_wake_wanted = False
        self.owed: set[Replica] = set()
        """Replicas with bytes in an answer that may not have arrived."""
        self.asked_again: set[PartitionId] = set()
        """Partitions fetched again at the same offset: their next bytes are checked first."""

    @property
    def is_parked(self) -> bool:
        """True if a fetch waits."""
        return self.call is not None and self.call.session.parked_fetch is self

    @property
    def is_closed(self) -> bool:
        """True if its connection is closed."""
        return self.call is None or self.call.session.is_closed

    # The session calls these.

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Do nothing, because a follower sends no request while a fetch is pending."""

    def make_way(self) -> None:
        """End the wait, because nothing more is read from its connection before the answer."""
        self.fetches.make_way(self)

    def forget(self) -> None:
        """Remove the line, because its connection is closed."""
        self.fetches.forget(self)

    def drop(self) -> None:
        """Remove the fetch without an answer."""
        self.fetches.forget(self)
        assert self.call is not None
        self.call.answer_nothing()

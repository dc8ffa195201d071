"""One connection on which a follower fetches, as the leader knows it.

This module is pure. A follower has two such lines, each with its own fetch session. One line is for
the partitions that are in sync or have caught up. The other line is for the partitions that must
still catch up (decision 0131). `replica_fetch` serves them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from broker.replicas.replica import Replica
from broker.replication.follower_session import FollowerSession
from broker.replication.follower_steps import PartitionId
from broker.sessions.call import Call


class LineName(NamedTuple):
    """The name of one of the two lines of a follower."""

    node_id: int
    is_catch_up: bool

    @property
    def other(self) -> LineName:
        """The name of the other line of the same follower."""
        return LineName(self.node_id, not self.is_catch_up)


class LineOwner(Protocol):
    """The interface to the code that serves the lines (`replica_fetch`)."""

    def forget(self, line: FollowerLine) -> None:
        """Remove a line, because its connection is closed."""

    def make_way(self, line: FollowerLine) -> None:
        """End the wait of the line's fetch now."""


class FollowerLine:
    """One connection of a follower: its fetch session, and its parked fetch, if any."""

    __slots__ = (
        "asked_again",
        "asked_ms",
        "call",
        "deadline_ms",
        "fetches",
        "hasty_until_ms",
        "is_wake_wanted",
        "max_bytes",
        "name",
        "owed",
        "session",
    )

    def __init__(self, fetches: LineOwner, name: LineName, session: FollowerSession) -> None:
        self.fetches = fetches
        self.name = name
        self.session = session
        self.call: Call | None = None
        """The call of the newest fetch."""
        self.max_bytes = 0
        self.asked_ms = 0
        """The monotonic time at which the newest fetch came."""
        self.deadline_ms = 0
        self.hasty_until_ms = 0
        """The monotonic time until which a fetch waits only briefly, so that the next fetch can
        name new partitions."""
        self.is_wake_wanted = False
        self.owed: set[Replica] = set()
        """The replicas whose records are in the newest answer. The follower has possibly not
        received this answer yet."""
        self.asked_again: set[PartitionId] = set()
        """The partitions that the follower fetched again at the same offset. Their next batches are
        checked before they are sent."""

    @property
    def is_parked(self) -> bool:
        """True if a fetch of this line is parked."""
        return self.call is not None and self.call.session.parked_fetch is self

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return self.call is None or self.call.session.is_closed

    # The connection's session calls these.

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Do nothing. A client's fetch is answered early when another request waits behind it, but
        a follower sends no request on this connection while its fetch is pending."""

    def make_way(self) -> None:
        """End the wait, because the connection reads nothing more before the answer is sent."""
        self.fetches.make_way(self)

    def forget(self) -> None:
        """Remove the line, because its connection is closed."""
        self.fetches.forget(self)

    def drop(self) -> None:
        """Remove the line, and the fetch without an answer."""
        self.fetches.forget(self)
        assert self.call is not None
        self.call.answer_nothing()

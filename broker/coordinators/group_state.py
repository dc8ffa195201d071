"""The states of a classic group, and the legal moves between them.

This module is pure. The names are Kafka's, as in DescribeGroups and ListGroups.

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
      ▲               │ ▲                    │                 │
      └───────────────┘ └────────────────────┴─────────────────┘
                  and Dead from any of them
"""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """The state of a group."""

    EMPTY = "Empty"
    """The group has no members, but it can have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The group waits for its members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has been formed, and the group waits for its leader's assignments."""
    STABLE = "Stable"
    """Every member has its assignment, or can get it with SyncGroup."""
    DEAD = "Dead"
    """The group is unknown, or was removed."""


_REACHED_FROM: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class IllegalGroupMove(Exception):
    """The error for a move between states that is not allowed.

    It is a bug of the broker, never a client's fault.
    """

    def __init__(self, source: GroupState, target: GroupState) -> None:
        super().__init__(f"from {source} to {target}")
        self.source = source
        self.target = target


def may_follow(source: GroupState, target: GroupState) -> bool:
    """Return True if a group in `source` may move to `target`."""
    return source in _REACHED_FROM[target]


def check_move(source: GroupState, target: GroupState) -> None:
    """Raise IllegalGroupMove unless the move from `source` to `target` is allowed."""
    if not may_follow(source, target):
        raise IllegalGroupMove(source, target)

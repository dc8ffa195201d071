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
    """No members; there can be committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for its members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has been formed. The group waits for its leader's assignment."""
    STABLE = "Stable"
    """Every member has an assignment, or can ask for it."""
    DEAD = "Dead"
    """Unknown, or removed."""


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
    """A move that no rule allows. It is a bug of the broker, never a client's fault."""

    def __init__(self, source: GroupState, target: GroupState) -> None:
        super().__init__(f"from {source} to {target}")
        self.source = source
        self.target = target


def may_follow(source: GroupState, target: GroupState) -> bool:
    """Return whether a group in `source` may move to `target`."""
    return source in _REACHED_FROM[target]


def check_move(source: GroupState, target: GroupState) -> None:
    """Raise IllegalTransition unless the move is allowed."""
    if not may_follow(source, target):
        raise IllegalGroupMove(source, target)

"""The vote file: the epoch of this replica, and the candidate that this replica has voted for.

This module is pure. The file is Kafka's `quorum-state` in JSON, data version 1 (KIP-853: with the
directory of the candidate, without voters and cluster). It must be durable before any message that
depends on it is sent. A replica that lost its vote could vote twice in one epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from broker.quorum.voters import ReplicaKey
from protocol.types import NO_NODE, ZERO_UUID, uuid_from_base64, uuid_to_base64

FILE_NAME = "quorum-state"
DATA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ElectionState:
    """A replica's epoch with its vote and, if the replica knows it, the epoch's leader."""

    epoch: int
    voted: ReplicaKey | None = None
    leader_id: int = NO_NODE


class VoteFileError(ValueError):
    """The vote file is damaged or has another version. A node that cannot read it must not vote."""


def encode(election: ElectionState) -> bytes:
    """Return the content of the vote file."""
    voted = election.voted or ReplicaKey(NO_NODE, ZERO_UUID)
    fields = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": uuid_to_base64(voted.directory_id),
        "data_version": DATA_VERSION,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(content: bytes, path: str = FILE_NAME) -> ElectionState:
    """Read the content of a vote file that `encode` or Kafka wrote.

    Raises VoteFileError, which names the file by `path`.
    """
    try:
        fields = json.loads(content)
        version = fields["data_version"]
        if version != DATA_VERSION:
            raise VoteFileError(f"{path}: found data_version {version}, expected {DATA_VERSION}")
        epoch, leader_id, voted_id = (
            _number(fields, name) for name in ("leaderEpoch", "leaderId", "votedId")
        )
        directory_id = uuid_from_base64(fields["votedDirectoryId"])
    except VoteFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VoteFileError(f"{path}: this is not a valid vote file: {error!r}") from error
    if epoch < 0 or min(leader_id, voted_id) < NO_NODE:
        raise VoteFileError(
            f"{path}: found epoch {epoch}, leader {leader_id} and a vote for {voted_id}, which "
            "do not belong together"
        )
    voted = ReplicaKey(voted_id, directory_id) if voted_id != NO_NODE else None
    return ElectionState(epoch, voted, leader_id)


def _number(fields: dict[str, object], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise VoteFileError(f"{name} in the vote file is {value!r}, expected a whole number")
    return value

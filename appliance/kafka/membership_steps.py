"""The steps of commands that change which brokers belong to a cluster, and what they hold.

This module is pure. `removal_plan`, `addition`, `growth_plan`, `disk_plan` and `broker_move_plan`
decide which steps are left, and `membership` takes them. The text of a step is what the commands
show.
"""

from dataclasses import dataclass
from pathlib import Path

from appliance.kafka.reassignment_files import Targets
from appliance.output import counted
from protocol.types import TopicPartition, Uuid


@dataclass(frozen=True, slots=True)
class WaitForService:
    """Wait until the broker has the cluster's metadata and serves clients."""

    node_id: int

    def __str__(self) -> str:
        return f"wait until broker {self.node_id} is in service"


@dataclass(frozen=True, slots=True)
class Cordon:
    """Let the broker get no new replicas."""

    node_id: int

    def __str__(self) -> str:
        return f"cordon broker {self.node_id}, so that it gets no new replicas"


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Let the broker get new replicas. An id that was removed comes back cordoned."""

    node_id: int

    def __str__(self) -> str:
        return f"let broker {self.node_id} get new replicas"


@dataclass(frozen=True, slots=True)
class WaitForMetadata:
    """Wait until the leader of the quorum knows that the broker has all metadata."""

    node_id: int

    def __str__(self) -> str:
        return f"wait until broker {self.node_id} has all metadata, so that it can vote"


@dataclass(frozen=True, slots=True)
class GiveVote:
    """Make an observer a voter of the metadata quorum."""

    node_id: int
    directory_id: Uuid

    def __str__(self) -> str:
        return f"make broker {self.node_id} a voter"


@dataclass(frozen=True, slots=True)
class TakeVote:
    """Remove the broker from the voters."""

    node_id: int
    directory_id: Uuid
    left: tuple[int, ...]

    def __str__(self) -> str:
        left = ", ".join(map(str, self.left))
        text = f"remove broker {self.node_id} from the voters; {left} will vote"
        if len(self.left) == 2:
            text += ", and both must then run: no broker can fail"
        return text


@dataclass(frozen=True, slots=True)
class StartMoves:
    """Start reassignments to replicas on other brokers."""

    targets: Targets

    def __str__(self) -> str:
        return f"move the replicas of {counted(len(self.targets), 'partition')} to other brokers"


@dataclass(frozen=True, slots=True)
class WaitForMoves:
    """Wait until the brokers have moved these partitions to their new replicas."""

    targets: Targets

    def __str__(self) -> str:
        return f"wait until {counted(len(self.targets), 'partition')} moved away"


@dataclass(frozen=True, slots=True)
class AddReplicas:
    """Start reassignments that add replicas. `what` names the kind of topics."""

    targets: Targets
    what: str

    def __str__(self) -> str:
        return f"add replicas to {counted(len(self.targets), 'partition')} of {self.what}"


@dataclass(frozen=True, slots=True)
class WaitForReplicas:
    """Wait until the brokers have copied these partitions to their new replicas."""

    targets: Targets
    what: str

    def __str__(self) -> str:
        count = counted(len(self.targets), "partition")
        return f"wait until {count} of {self.what} have all replicas in sync"


@dataclass(frozen=True, slots=True)
class RaiseMinIsr:
    """Set `min.insync.replicas` of topics that have a lower value of their own."""

    values: tuple[tuple[str, int], ...]
    """The topics, each with its new value."""

    def __str__(self) -> str:
        what = ", ".join(f"{topic} to {value}" for topic, value in self.values)
        return f"raise min.insync.replicas of {what}"


@dataclass(frozen=True, slots=True)
class GiveUpLeaders:
    """Elect the preferred leaders of partitions that the broker leads."""

    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"give up the leadership of {counted(len(self.partitions), 'partition')}"


@dataclass(frozen=True, slots=True)
class SpreadLeaders:
    """Elect the preferred leaders of partitions that another broker leads."""

    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"elect the preferred leaders of {counted(len(self.partitions), 'partition')}"


@dataclass(frozen=True, slots=True)
class StartBroker:
    """Start the broker's process. Its data folder is empty."""

    node_id: int

    def __str__(self) -> str:
        return f"start broker {self.node_id} with an empty folder"


@dataclass(frozen=True, slots=True)
class StopBroker:
    """Stop the broker's process."""

    node_id: int

    def __str__(self) -> str:
        return f"stop broker {self.node_id}"


@dataclass(frozen=True, slots=True)
class MoveFolder:
    """Move the data folder of a stopped broker."""

    node_id: int
    source: Path
    target: Path

    def __str__(self) -> str:
        return f"move the folder of broker {self.node_id} from {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class StartMoved:
    """Start the broker's process at its new place."""

    node_id: int
    address: str
    is_empty: bool = False

    def __str__(self) -> str:
        what = "an empty folder" if self.is_empty else "its folder"
        return f"start broker {self.node_id} with {what}; other brokers reach it at {self.address}"


@dataclass(frozen=True, slots=True)
class WaitForAddress:
    """Wait until the record of the voters has the broker's address."""

    node_id: int
    address: str

    def __str__(self) -> str:
        return f"wait until the voters' record has {self.address} for broker {self.node_id}"


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove the broker's registration."""

    node_id: int

    def __str__(self) -> str:
        return f"unregister broker {self.node_id}"


MembershipStep = (
    WaitForService
    | Cordon
    | Uncordon
    | WaitForMetadata
    | GiveVote
    | TakeVote
    | StartMoves
    | WaitForMoves
    | AddReplicas
    | WaitForReplicas
    | RaiseMinIsr
    | GiveUpLeaders
    | SpreadLeaders
    | StartBroker
    | StopBroker
    | MoveFolder
    | StartMoved
    | WaitForAddress
    | Unregister
)

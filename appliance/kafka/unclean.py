"""Reports what an unclean election could lose, as far as the cluster shows it.

This module is pure, except for `survey`. Kafka's protocol reports replicas and their sizes, but not
their last epochs and offsets. So the number of lost records is unknown, and the texts say this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.kafka.reassign import ClusterReplicas, look
from appliance.kafka.replica_copies import disk_use
from appliance.output import size_text
from protocol.client.cluster import Cluster
from protocol.client.topic_details import PartitionDetails
from protocol.reassignment import election_order
from protocol.types import TopicPartition

Sizes = Mapping[tuple[TopicPartition, int], int]
"""The bytes of each replica, by partition and broker."""


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """A partition that only an unclean election can give a leader.

    `elected` is the replica in service that the controller would elect. `away` are the replicas
    that are not in service. `trusted` are those of them that were last in sync or eligible.
    """

    tp: TopicPartition
    elected: int | None
    elected_bytes: int | None
    away: tuple[int, ...]
    trusted: tuple[int, ...]

    def sentence(self) -> str:
        """Return a sentence that says which replica would lead and what could be lost."""
        if self.elected is None:
            away = ", ".join(map(str, self.away))
            return (
                f"{self.tp}: no replica is in service, so there can be no leader; the replicas are"
                f" on brokers {away}"
            )
        size = "of unknown size" if self.elected_bytes is None else size_text(self.elected_bytes)
        text = f"{self.tp}: broker {self.elected} would lead with its copy ({size})"
        if not self.trusted:
            return f"{text}; which records it lacks is unknown"
        brokers = "brokers" if len(self.trusted) > 1 else "broker"
        named = f"{brokers} {', '.join(map(str, self.trusted))}"
        return (
            f"{text}; records that only {named} can have are lost, and acknowledged ones can be "
            "among them. Their number is unknown"
        )


async def survey(
    cluster: Cluster, named: Sequence[TopicPartition] | None
) -> tuple[ClusterReplicas, list[UncleanElection]]:
    """Return which of these partitions (None: all) need an unclean election, and what each election
    could lose.

    Raises ApiError and ClientError.
    """
    names = None if named is None else {tp.topic for tp in named}
    found = await look(cluster, names)
    disks = await disk_use(cluster, found.brokers)
    elections = [
        election_of(tp, one, found, disks.replicas)
        for tp, one in found.partitions()
        if one.leader_id is None and (named is None or tp in named)
    ]
    return found, elections


def election_of(
    tp: TopicPartition, partition: PartitionDetails, found: ClusterReplicas, sizes: Sizes
) -> UncleanElection:
    """Return the election of a partition without a leader."""
    moving = found.moving.get(tp)
    order = partition.replicas
    if moving is not None:
        order = election_order(order, moving.adding, moving.removing)
    live = [one for one in order if one in found.brokers]
    away = tuple(one for one in partition.replicas if one not in found.brokers)
    elected = live[0] if live else None
    trusted = {
        *partition.in_sync_replicas,
        *(partition.eligible_leader_replicas or ()),
        *(partition.last_known_elr or ()),
    }
    return UncleanElection(
        tp,
        elected,
        None if elected is None else sizes.get((tp, elected)),
        away,
        tuple(sorted(trusted - {elected})),
    )

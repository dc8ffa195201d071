"""The replication of partitions between the brokers of a cluster.

It is created before the partitions are opened, because they notify it of their roles.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.membership_driver import MembershipDriver
from broker.cluster.messenger import LinkMessenger
from broker.config import InForce
from broker.fetch.replica_fetch import ReplicaFetches
from broker.fetch.replica_ports import ReplicaFetchPorts
from broker.metadata.image import METADATA_TOPIC_ID
from broker.metrics.warnings import Warnings
from broker.replicas.copies import CopyState
from broker.replicas.copy_limit import CopyLimit
from broker.replicas.damage import Damage
from broker.replicas.follower_logs import FollowerPorts
from broker.replicas.followers import Followers
from broker.replicas.isr_driver import IsrDriver
from broker.replicas.refusals import WriteFailed
from broker.replicas.replicas import Replicas
from broker.replication.follower_session import FollowerIdentity
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from broker.sessions.peers import Peers
from broker.storage.log import Log
from broker.world import Jobs, World
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.types import TopicPartition


class Replication:
    """Fetches from leaders, serves followers, and proposes in-sync replicas."""

    def __init__(
        self,
        me: FollowerIdentity,
        settings: InForce,
        world: World,
        peers: Peers,
        membership: MembershipDriver,
        replicas: Replicas,
        files: Jobs,
        warnings: Warnings,
        write_failed: WriteFailed,
        trim: Callable[[Log, int, Callable[[], None]], None],
    ) -> None:
        """`me` identifies this process to leaders and to the controller. `files` and `trim` are as
        in `FollowerPorts`."""
        self._isr = IsrDriver(
            world, me, replicas, membership.ask_controller, lambda: membership.lived_ms
        )
        self._fetches = ReplicaFetches(
            ReplicaFetchPorts(
                world,
                replicas,
                warnings,
                lambda: membership.lived_ms,
                self._isr.heard,
                CopyLimit.of_leader(settings, world.clock),
            )
        )
        self._followers = Followers(
            FollowerPorts(
                world,
                peers,
                replicas,
                files,
                warnings,
                write_failed,
                trim,
                CopyLimit.of_follower(settings, world.clock),
            ),
            me,
            replicas.logs.directory_id,
        )
        damage = Damage(world, replicas, membership.damaged, files)
        replicas.listen(self._followers, self._fetches, damage)

    @property
    def is_out_of_room(self) -> bool:
        """True if copies pause, because the disk is nearly full."""
        return self._followers.copies.is_out_of_room

    @property
    def copies(self) -> dict[TopicPartition, CopyState]:
        """The copies of replicas that this broker fetches."""
        return self._followers.copies.states

    def start(self) -> None:
        """Begin to propose in-sync replicas for the partitions that this broker leads."""
        self._isr.start()

    def complete_all(self) -> None:
        """Answer the parked fetches of followers, because the broker stops."""
        self._fetches.complete_all()

    def stop(self) -> None:
        """Stop the fetches from leaders and the proposals."""
        self._isr.stop()
        self._followers.stop()

    def handlers(self, messenger: LinkMessenger) -> dict[ApiKey, Handler]:
        """Return the handlers for other brokers. The quorum answers fetches of the metadata log."""

        def fetch(call: Call, request: FetchRequest) -> FetchResponse | None:
            if any(topic.topic_id == METADATA_TOPIC_ID for topic in request.topics):
                messenger.received(call, request)
                return None
            return self._fetches.start(call, request)

        return {ApiKey.FETCH: fetch}

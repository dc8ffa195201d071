"""Keeps this voter's address in the record of the voters up to date (KIP-853, UpdateRaftVoter).

A broker that votes compares its own address with the newest voter set. If they differ, it asks the
leader of the quorum to write its address. So other brokers find a voter that moved even if neither
their files nor a registration in their log names its new address.

A disk that can be an old copy sends nothing until it has caught up, and a process sends nothing
until the metadata has its own registration. So no stale copy takes the address of the true voter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.alarm import Alarm
from broker.cluster.quorum_driver import QuorumDriver
from broker.controller.features import refuse_order
from broker.metadata.image import MetadataImage
from broker.quorum.voters import KRAFT_VERSION, Endpoint, ReplicaKey
from broker.world import End, World
from protocol.errors import ApiError
from protocol.messages.voters import QuorumListener, UpdateRaftVoterRequest, VoterVersions
from protocol.types import NO_NODE, Uuid
from protocol.wire.schema import Message

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000
"""The first and the longest wait in milliseconds before a request is repeated that was refused or
not answered. It doubles each time. A leader of an earlier version does not know the request."""

AskController = Callable[[Message, Callable[[Any], None], Callable[[End], None]], None]


class VoterAddress:
    """Sends this voter's address to the leader whenever the voter set names another one."""

    def __init__(
        self,
        me: ReplicaKey,
        endpoint: Endpoint,
        incarnation_id: Uuid,
        quorum: QuorumDriver,
        ask_controller: AskController,
        world: World,
    ) -> None:
        """`endpoint` is where other brokers reach this one. `incarnation_id` is that of this
        process."""
        self._me = me
        self._endpoint = endpoint
        self._incarnation_id = incarnation_id
        self._quorum = quorum
        self._ask_controller = ask_controller
        self._clock = world.clock
        self._alarm = Alarm(world, self._on_time)
        self._image = MetadataImage()
        self._is_asking = False
        self._is_stopped = False
        self._wait_ms = RETRY_MS_MIN
        self._retry_at_ms = 0

    def leader_changed(self) -> None:
        """Look again, because the record of an earlier leader can be lost."""
        self._wait_ms = RETRY_MS_MIN
        self._retry_at_ms = 0
        self._look()

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image."""
        self._image = image
        self._look()

    def stop(self) -> None:
        """Send no more requests."""
        self._is_stopped = True
        self._alarm.stop()

    def _look(self) -> None:
        if self._is_asking or not self._must_send():
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._retry_at_ms:
            self._alarm.wake_by(self._retry_at_ms)
            return
        request = self._request()
        try:
            refuse_order(request, self._image)
        except ApiError:
            # The level of the log is too low. A change of the level moves the image.
            return
        self._is_asking = True
        # Whatever the answer is, look again after a while: the record can still be lost.
        self._retry_at_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, RETRY_MS_MAX)
        self._ask_controller(request, self._ended, self._ended)

    def _must_send(self) -> bool:
        quorum, registered = self._quorum, self._image.brokers.get(self._me.node_id)
        voter = quorum.voters.voter(self._me.node_id)
        return (
            not self._is_stopped
            and voter is not None
            and voter.key == self._me
            and self._endpoint not in voter.endpoints
            and quorum.leader_id != NO_NODE
            and not quorum.must_catch_up
            and registered is not None
            and registered.incarnation_id == self._incarnation_id
        )

    def _request(self) -> UpdateRaftVoterRequest:
        name, host, port = self._endpoint
        return UpdateRaftVoterRequest(
            cluster_id=self._quorum.quorum.replica.cluster_id,
            current_leader_epoch=self._quorum.epoch,
            voter_id=self._me.node_id,
            voter_directory_id=self._me.directory_id,
            listeners=[QuorumListener(name=name, host=host, port=port)],
            k_raft_version_feature=VoterVersions(
                min_supported_version=KRAFT_VERSION, max_supported_version=KRAFT_VERSION
            ),
        )

    def _ended(self, _: object) -> None:
        """Handle an answer or a failure. In both cases only the voter set shows the result."""
        self._is_asking = False
        if self._must_send():
            self._alarm.wake_by(self._retry_at_ms)

    def _on_time(self, now_ms: int) -> int | None:
        self._look()
        return None

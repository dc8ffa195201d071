"""The guards of the controller's decisions. Each is removed, and a controller that decides while it
is cut off then causes a fault. The numbers refer to `docs/guards.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.controller.active import ActiveController, PendingDecision
from broker.controller.outcome import AllocateProducerIds
from broker.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE
from broker.metadata.image import MetadataImage
from broker.shards.producer_ids import Given, ProducerIds, Refused
from protocol.errors import ApiError
from tests.sim.metadata_nodes import MetadataCluster, MetadataNode
from tests.sim.test_metadata_nodes import SETTLED_MS

Patch = pytest.MonkeyPatch

ELECTED_MS = 8_000
"""Within this time a controller is active again."""


class Play:
    """Three nodes, of which the first controller is cut off from the other two."""

    def __init__(self) -> None:
        self.cluster = MetadataCluster("nobody hears")
        self.cluster.network.mix.late = 0.0
        self.alone = self.cluster.run_until_active(ELECTED_MS)
        self.others = [node for node in self.cluster.nodes if node is not self.alone]
        for other in self.others:
            self.cluster.network.cut(self.alone.host, other.host)
            self.cluster.network.cut(other.host, self.alone.host)

    def another(self) -> MetadataNode:
        """Wait until another node is the controller. Return that node."""
        for _ in range(ELECTED_MS // 10):
            self.cluster.network.timeline.run_for(10)
            for node in self.others:
                if node.metadata is not None and node.metadata.controller.is_active:
                    return node
        raise AssertionError("no other node leads")

    def settle(self) -> None:
        """End all faults. Check that all nodes are equal and that no block of ids is missing."""
        self.cluster.mend()
        self.cluster.run_until_active(ELECTED_MS)
        self.cluster.run_for(500)
        self.cluster.network.timeline.run_for(SETTLED_MS)
        self.cluster.judge()


def an_order_is_decided_and_never_committed() -> None:
    """The controller that is cut off decides an order, and the next controller decides the same for
    another client. Only the second client may get the block."""
    play = Play()
    play.cluster.order(play.alone)
    play.cluster.order(play.another())
    play.settle()


def who_has_decided_for_nothing_decides_again() -> None:
    """A controller's uncommitted decisions were truncated, and other nodes have decided since. When
    it is the controller again, it must continue from their decisions."""
    play = Play()
    play.cluster.order(play.alone)
    another = play.another()
    for _ in range(3):
        play.cluster.order(another)
    play.cluster.network.timeline.run_for(SETTLED_MS)
    play.cluster.network.heal()
    play.cluster.network.timeline.run_for(SETTLED_MS)
    while (active := play.cluster.run_until_active(ELECTED_MS)) is not play.alone:
        active.kill()
        play.cluster.run_until_active(ELECTED_MS)
        active.start()
    play.cluster.order(play.alone)
    play.settle()


def producer_ids_are_asked_of_a_node_that_is_cut_off() -> None:
    """A node that is cut off orders a block of producer ids. It must not use the block before it is
    committed, because another node can get the same block."""
    play = Play()
    taken: list[int] = []

    def take(node: MetadataNode) -> None:
        assert node.metadata is not None
        ids = ProducerIds(node.metadata, node.node_id, 0)
        ids.take(taken.append, lambda error: None)

    take(play.alone)
    take(play.another())
    play.cluster.network.timeline.run_for(SETTLED_MS)
    assert taken
    assert len(set(taken)) == len(taken), f"a producer id was given out twice: {taken}"


def _replies_after_commit(patch: Patch) -> None:
    stand = ActiveController._stand

    def answered_at_once(self: ActiveController, one: PendingDecision) -> None:
        stand(self, one)
        waiter, one.waiter = one.waiter, None
        if waiter is not None:
            waiter.reply(one.reply)

    patch.setattr(ActiveController, "_stand", answered_at_once)


def _speculation_dropped(patch: Patch) -> None:
    """Let a controller continue from the uncommitted decisions of an earlier epoch."""
    begin, lose = ActiveController.__init__, ActiveController.lose
    kept: dict[Any, MetadataImage] = {}

    def begin_with_it(
        self: ActiveController, controller: Any, limits: Any, image: MetadataImage
    ) -> None:
        speculated = kept.pop(controller, image)
        begin(self, controller, limits, replace(speculated, end_offset=image.end_offset))

    def keep(self: ActiveController) -> None:
        kept[self._controller] = self._newest
        lose(self)

    patch.setattr(ActiveController, "__init__", begin_with_it)
    patch.setattr(ActiveController, "lose", keep)


def _block_committed_before_use(patch: Patch) -> None:
    """Let a node use a block of ids as soon as it has ordered it."""

    def take(self: ProducerIds, given: Given, refused: Refused) -> None:
        first = self._metadata.image.next_producer_id
        self._left = iter(range(first, first + PRODUCER_ID_BLOCK_SIZE))
        given(next(self._left))
        order = AllocateProducerIds(self._node_id, self._broker_epoch)
        self._metadata.submit(order, _nothing, _nothing)

    patch.setattr(ProducerIds, "take", take)


def _nothing(reply: range | ApiError) -> None:
    """Ignore the reply."""


MissedGuard = tuple[Callable[[Patch], None], Callable[[], None], str]

GUARDS: dict[str, MissedGuard] = {
    "27 replies after commit": (
        _replies_after_commit,
        an_order_is_decided_and_never_committed,
        "was given twice",
    ),
    "28 speculation dropped": (
        _speculation_dropped,
        who_has_decided_for_nothing_decides_again,
        "was given twice",
    ),
    "29 producer-id block committed before use": (
        _block_committed_before_use,
        producer_ids_are_asked_of_a_node_that_is_cut_off,
        "given out twice",
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(name: str, monkeypatch: Patch) -> None:
    take_out, course, complaint = GUARDS[name]
    course()
    take_out(monkeypatch)
    with pytest.raises(AssertionError, match=complaint):
        course()

"""Random histories of group members, with faults of clients, disk and broker. The invariants of a
group always hold.

A client behaves like a real one: it joins, computes the assignment if it is the leader, syncs,
sends heartbeats and follows the responses. At random a client dies, leaves, restarts, changes its
subscription or is slow. The disk delays or refuses writes, and the broker restarts.
"""

from random import Random

import pytest

from broker.coordinators.group_state import GroupState
from broker.coordinators.group_terms import JoinAnswer, StoreGroup, SyncAnswer
from protocol.errors import ErrorCode
from tests.harness.seed import seeded
from tests.unit.broker.group_scene import GROUP, Asked, Client, Scene, subscription

PARTITIONS = frozenset(range(12))
SESSION_MS = 10_000
REBALANCE_MS = 30_000
LONGEST_WAIT_MS = 300_000 + 2 * REBALANCE_MS
"""A new member waits for at most five minutes, and a known member for two rebalances."""

FORGET_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Actor:
    """One simulated client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked: Asked | None = None
        self.asked_ms = 0
        self.is_alive = True
        self.has_share = False
        self.seen_generation = -1

    def forget(self) -> None:
        self.client.member_id, self.client.generation = "", -1
        self.has_share = False


class World:
    """A group, its clients, and the partitions that each client owns."""

    def __init__(self, random: Random) -> None:
        self.random = random
        static_share = random.choice((0.0, 0.5))
        self.scene = Scene(
            delay_ms=random.choice((0, 3_000)), size_max=random.choice((5, 100)), random=random
        )
        self.actors = [
            Actor(self._client(number, static_share)) for number in range(random.randint(2, 8))
        ]
        self.owners: dict[int, dict[int, str]] = {}
        """The member that owns each partition, by generation."""
        self.generation = 0
        self.stored_generation = 0
        self.rebalances = self.shares = 0

    def _client(self, number: int, static_share: float) -> Client:
        instance = f"i{number}" if self.random.random() < static_share else None
        protocols = self.random.choice((("range", "sticky"), ("sticky", "range")))
        return Client(
            f"c{number}", instance, protocols, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )

    # One step.

    def step(self) -> None:
        scene, random = self.scene, self.random
        scene.pass_to(scene.now_ms + random.choice((0, 1, 50, 500, 3_000)))
        for actor in self.actors:
            self._settle(actor)
        actor = random.choice(self.actors)
        chance = random.random()
        if chance < 0.02:
            actor.is_alive = not actor.is_alive
            actor.forget()
            actor.asked = None
        elif chance < 0.03 and actor.is_alive and actor.asked is None and actor.client.member_id:
            scene.leave(actor.client)
            actor.forget()
        elif chance < 0.04:
            actor.client.said = subscription("t", f"u{random.randrange(3)}")
        elif chance < 0.06:
            scene.is_held = True
        elif chance < 0.16:
            scene.is_held = False
        elif chance < 0.165:
            self._restart()
        if scene.held and random.random() < (0.1 if scene.is_held else 1):
            failed = random.random() < 0.2
            scene.let_store(ErrorCode.COORDINATOR_NOT_AVAILABLE if failed else ErrorCode.NONE)
        self._act_all()
        self._check()

    def _act_all(self, share: float = 0.6) -> None:
        for actor in self.random.sample(self.actors, len(self.actors)):
            if actor.is_alive and actor.asked is None and self.random.random() < share:
                self._act(actor)

    def heal(self) -> None:
        """End all faults. Check that all live members soon have a stable assignment."""
        self.scene.is_held = False
        while self.scene.held:
            self.scene.let_store()
        for _ in range(150):
            self.scene.pass_to(self.scene.now_ms + 1_000)
            for actor in self.actors:
                self._settle(actor)
            # Every client acts each second. A client that acts at random would sometimes miss its
            # session timeout of ten seconds.
            self._act_all(share=1)
            self._check()
        alive = [one for one in self.actors if one.is_alive]
        if not alive:
            return
        assert self.scene.group.state is GroupState.STABLE
        sharing = sum(one.has_share for one in alive)
        assert sharing == min(len(alive), self.scene.limits.size_max)

    def _restart(self) -> None:
        self.scene.restart()
        # The restart closed the connections, so pending requests get no response.
        for actor in self.actors:
            actor.asked = None
        # The group can use a generation again if none of its assignments was delivered.
        self.generation = self.stored_generation

    def _act(self, actor: Actor) -> None:
        client = actor.client
        if not client.member_id or client.generation < 0:
            self._ask(actor, self.scene.join(client, needs_id=True, may_skip=True))
        elif not actor.has_share:
            shares = {}
            group = self.scene.shard.members.get(GROUP)
            if group is not None and group.roster.leader_id == client.member_id:
                shares = self._shared_out([one.member_id for one in group.roster])
            self._ask(actor, self.scene.sync(client, shares))
        else:
            self._obey(actor, self.scene.heartbeat(client))

    def _shared_out(self, members: list[str]) -> dict[str, bytes]:
        order = sorted(PARTITIONS)
        self.random.shuffle(order)
        return {member: bytes(order[index :: len(members)]) for index, member in enumerate(members)}

    def _ask(self, actor: Actor, asked: Asked) -> None:
        actor.asked, actor.asked_ms = asked, self.scene.now_ms
        self._settle(actor)

    def _settle(self, actor: Actor) -> None:
        """Process the client's response if it has arrived."""
        if actor.asked is None or actor.asked.reply is None:
            return
        reply, actor.asked = actor.asked.reply, None
        if reply.error is not ErrorCode.NONE:
            self._obey(actor, reply.error)
        elif isinstance(reply, JoinAnswer):
            actor.has_share = False
            assert reply.generation_id >= self.generation, "a generation goes back"
            self.generation = reply.generation_id
        elif isinstance(reply, SyncAnswer):
            self._own(actor, reply.assignment)

    def _own(self, actor: Actor, share: bytes) -> None:
        actor.has_share = True
        self.shares += 1
        client = actor.client
        owners = self.owners.setdefault(client.generation, {})
        for partition in share:
            owner = owners.setdefault(partition, client.instance or client.member_id)
            assert owner == (client.instance or client.member_id), "owned twice"

    def _obey(self, actor: Actor, code: ErrorCode) -> None:
        if code in FORGET_ID:
            actor.forget()
        elif code is not ErrorCode.MEMBER_ID_REQUIRED and code is not ErrorCode.NONE:
            actor.client.generation = -1
            actor.has_share = False

    # What must hold after every step.

    def _check(self) -> None:
        scene = self.scene
        for _, event in scene.events:
            if isinstance(event, StoreGroup) and event.cause is not None:
                self.rebalances += 1
        scene.events.clear()
        for actor in self.actors:
            waited_ms = scene.now_ms - actor.asked_ms
            assert actor.asked is None or waited_ms <= LONGEST_WAIT_MS, "left unanswered"
        group = scene.shard.members.get(GROUP)
        if group is None:
            return
        assert group.generation_id >= self.generation
        self.generation = max(self.generation, group.generation_id)
        roster = group.roster
        waiting = sum(one.join_token is not None for one in roster)
        assert roster.waiting_count == waiting
        assert (roster.leader_id in roster) == bool(len(roster)), "one leader, and a member"
        statics = [one.group_instance_id for one in roster if one.group_instance_id is not None]
        assert sorted(statics) == sorted(roster.static_ids), "an instance is one member"
        if group.state is not GroupState.PREPARING_REBALANCE:
            # Only while a rebalance is prepared can earlier members exceed the limit. Absent static
            # members keep their places, so they do not count.
            assert len(roster) - len(statics) <= scene.limits.size_max
        if group.state is GroupState.STABLE:
            self.stored_generation = max(self.stored_generation, group.generation_id)
            owned = [partition for one in roster for partition in one.assignment]
            assert sorted(owned) == sorted(PARTITIONS), "every partition has one owner"
        if group.state is GroupState.EMPTY:
            assert not len(roster)
        else:
            assert len(roster) or group.state is GroupState.PREPARING_REBALANCE
        for member in roster:
            is_expected = member.timer is not None and member.timer.item is not None
            is_waiting = member.join_token is not None or member.sync_token is not None
            assert is_expected or is_waiting, "the session of a member never expires"


def lives(random: Random, steps: int) -> World:
    world = World(random)
    for _ in range(steps):
        world.step()
    world.heal()
    return world


@pytest.mark.parametrize("name", [f"life {number}" for number in range(40)])
def test_a_group_keeps_its_promises(name: str) -> None:
    lives(seeded(name), 600)


def test_the_lives_are_lively() -> None:
    """The model would prove nothing if its groups never became stable."""
    worlds = [lives(Random(seed), 600) for seed in range(10)]
    assert sum(world.rebalances for world in worlds) > 100
    assert sum(world.shares for world in worlds) > 150


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"long life {number}" for number in range(200)])
def test_a_group_keeps_its_promises_for_long(name: str) -> None:
    lives(seeded(name), 5_000)

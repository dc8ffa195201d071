"""Asks a cluster about its growth, and takes the steps of `growth_plan`."""

from collections.abc import Callable, Collection, Mapping, Sequence

from appliance.kafka import reassign
from appliance.kafka.configs import source_of
from appliance.kafka.growth_plan import (
    BROKERS_MIN,
    GrowthGoal,
    GrowthState,
    steps_to_grow,
)
from appliance.kafka.membership import TRIES_MAX, StepTaker, numbers_of, quorum_of
from appliance.kafka.membership_steps import MembershipStep, SpreadLeaders
from appliance.kafka.topics import MIN_ISR
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.node_keys import (
    DEFAULT_FACTOR,
    OFFSETS_FACTOR,
    TRANSACTIONS_FACTOR,
    TRANSACTIONS_MIN_ISR,
)
from protocol.client.admin_types import ConfigResource
from protocol.client.broker_admin import registered_brokers
from protocol.client.cluster import Cluster
from protocol.client.config_admin import describe_configs
from protocol.copy_progress import CopyEstimate


async def goal_of(
    cluster: Cluster,
    brokers: Sequence[int] | None,
    factors: Mapping[str, int],
    topics: Collection[str] | None,
) -> GrowthGoal:
    """Ask for the goal, which follows from the settings of a broker in service.

    `brokers` are those that the configuration lists; None: those that are registered. The first
    three of them must vote. `factors` has the numbers of replicas that the configuration states for
    topics. `topics` are those to grow; None: all. Raises ApiError and ClientError.
    """
    listed = sorted(await registered_brokers(cluster)) if brokers is None else brokers
    node_id = min((await cluster.metadata((), refresh=True)).brokers)
    keys = (DEFAULT_FACTOR, OFFSETS_FACTOR, TRANSACTIONS_FACTOR, MIN_ISR, TRANSACTIONS_MIN_ISR)
    found = await numbers_of(cluster, node_id, keys)
    internal = {OFFSETS_TOPIC: OFFSETS_FACTOR, TRANSACTIONS_TOPIC: TRANSACTIONS_FACTOR}
    stated = {topic: found[key] for topic, key in internal.items() if key in found}
    min_isrs = {}
    if TRANSACTIONS_MIN_ISR in found:
        min_isrs[TRANSACTIONS_TOPIC] = found[TRANSACTIONS_MIN_ISR]
    return GrowthGoal(
        tuple(listed[:BROKERS_MIN]),
        stated | dict(factors),
        found.get(DEFAULT_FACTOR, 1),
        min_isrs,
        found.get(MIN_ISR, 1),
        None if topics is None else frozenset(topics),
    )


async def look(cluster: Cluster, goal: GrowthGoal) -> GrowthState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    replicas = await reassign.look(cluster)
    return GrowthState(
        replicas,
        await reassign.cordoned(cluster, replicas.brokers),
        await quorum_of(cluster),
        await _stated_min_isr(cluster, replicas.topics),
        goal,
    )


async def _stated_min_isr(cluster: Cluster, topics: Collection[str]) -> dict[str, int]:
    resources = [ConfigResource.topic(name) for name in sorted(topics)]
    found = await describe_configs(cluster, resources, [MIN_ISR]) if resources else {}
    return {
        resource.name: int(one.value)
        for resource, entries in found.items()
        if (one := entries.get(MIN_ISR)) is not None
        and one.value
        and one.source == source_of(resource)
    }


async def grow(
    cluster: Cluster,
    goal: GrowthGoal,
    *,
    on_step: Callable[[MembershipStep], None],
    on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
    rate: int | None = None,
) -> None:
    """Take the steps until the cluster has grown. The callbacks are those of `StepTaker`.

    Raises CommandError for moves that the cluster refuses, and ApiError and ClientError.
    """
    taker = StepTaker(on_step, on_wait, rate)
    elections = 0
    while True:
        state = await look(cluster, goal)
        steps = steps_to_grow(state)
        if not steps:
            return
        if isinstance(steps[0], SpreadLeaders):
            elections += 1
            # The cluster elects preferred leaders later without being asked, so a refused
            # election delays nothing.
            if elections > TRIES_MAX:
                return
        await taker.take(cluster, state.replicas, steps[0])

"""Refuses to apply changes of brokers in the file that have a command of their own: brokers that
are not listed any more, as long as they have replicas or votes, and brokers with other ports."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from appliance.cli.cluster import TIMEOUT_S, with_cluster
from appliance.config.model import MillConfig
from appliance.mill.parts import BROKER_PREFIX
from appliance.output import CommandError, Exit, counted

if TYPE_CHECKING:
    from appliance.kafka.removal_plan import RemovalState
    from protocol.client.cluster import Cluster


def refuse_leaving_brokers(removed: Iterable[str]) -> None:
    """Raise CommandError if one of these brokers has not left the cluster. They can be on other
    hosts.

    The file only says which processes run. The metadata log says which brokers have replicas and
    votes. Only `./millrace broker remove` takes them away.
    """
    from appliance.kafka import removal

    async def work(cluster: "Cluster") -> "list[RemovalState]":
        return [await removal.look(cluster, one) for one in leaving]

    leaving = [
        int(name.removeprefix(BROKER_PREFIX)) for name in removed if name.startswith(BROKER_PREFIX)
    ]
    if not leaving:
        return
    for state in with_cluster(None, TIMEOUT_S, work):
        number = state.node_id
        if not state.held and state.vote is None:
            continue
        has = counted(len(state.held), "replica") if state.held else "a vote in the metadata quorum"
        raise CommandError(
            f"nothing was changed: broker {number} still has {has}, but cluster.brokers in the file"
            f" does not list it any more. Run `./millrace broker remove {number}` first",
            Exit.CONDITION,
        )


def refuse_moving_brokers(started: MillConfig, wanted: MillConfig) -> None:
    """Raise CommandError if single brokers of several get other ports. `broker move` lets them move
    one at a time, and looks at the others first."""
    numbers = moving_brokers(started, wanted)
    if not numbers or len(started.cluster.broker_ids) == 1:
        return
    raise CommandError(
        f"nothing was changed: broker {', '.join(map(str, numbers))} gets other ports in the file. "
        f"Run `./millrace broker move {numbers[0]}`",
        Exit.CONDITION,
    )


def moving_brokers(started: MillConfig, wanted: MillConfig) -> list[int]:
    """Return the brokers that the file gives another place in the ranges of ports."""
    return [
        one
        for one in started.cluster.broker_ids
        if one in wanted.cluster.broker_ids
        and started.ports.places.get(one, one) != wanted.ports.places.get(one, one)
    ]

"""Refuses to stop brokers that a changed file no longer lists, as long as they have replicas or
votes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from appliance.cli.cluster import TIMEOUT_S, with_cluster
from appliance.mill.parts import BROKER_PREFIX
from appliance.output import CommandError, Exit, counted

if TYPE_CHECKING:
    from appliance.kafka.removal_plan import RemovalState
    from protocol.client.cluster import Cluster


def refuse_leaving_brokers(removed: Iterable[str]) -> None:
    """Raise CommandError if one of these parts is a broker that has not left the cluster.

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

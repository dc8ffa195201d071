"""`millrace broker`: lists the brokers of the cluster, and shows the folders of their logs."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.broker_addition import add
from appliance.cli.broker_disk import replace_disk
from appliance.cli.broker_move import move
from appliance.cli.broker_removal import remove
from appliance.cli.broker_turns import turns
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    Row,
    TimeoutOption,
    emit,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.output import CommandError, Exit, print_json, say

if TYPE_CHECKING:
    from appliance.kafka.standing import ClusterState
    from protocol.client.cluster import Cluster

app = group_of_commands("Brokers of the cluster.")
app.command()(add)
app.command()(remove)
app.command("replace-disk")(replace_disk)
app.command()(turns)
app.command()(move)


@app.command("list")
def list_brokers(
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Every broker: whether it answers, and how many partitions it leads and replicates."""
    from appliance.kafka.versions import broker_versions
    from protocol.client.topic_details import list_topics

    async def work(cluster: "Cluster") -> list[Row]:
        topics = await list_topics(cluster)
        partitions = [one for topic in topics.values() for one in topic.partitions]
        controller = cluster.current.controller_id
        told = {one.broker.node_id: one for one in await broker_versions(cluster)}
        # Metadata lists only brokers that are in service. A dead broker is found because partitions
        # name it as a replica.
        named = {node_id for one in partitions for node_id in one.replicas}
        rows: list[Row] = []
        for node_id in sorted({*told, *named}):
            one = told.get(node_id)
            rows.append(
                {
                    "broker": node_id,
                    "address": None if one is None else f"{one.broker.host}:{one.broker.port}",
                    "rack": None if one is None else one.broker.rack,
                    "controller": node_id == controller,
                    "answers": one is not None and isinstance(one.ranges, dict),
                    "leads": sum(p.leader_id == node_id for p in partitions),
                    "replicas": sum(node_id in p.replicas for p in partitions),
                    "in_sync": sum(node_id in p.in_sync_replicas for p in partitions),
                }
            )
        return rows

    rows = with_cluster(bootstrap, timeout, work)
    emit("brokers/1", rows, output, as_json)
    if not all(row["answers"] for row in rows):
        raise typer.Exit(Exit.CONDITION)


@app.command()
def describe(
    broker: Annotated[
        int | None, typer.Argument(help="A broker id: its logs. Left out: the whole cluster.")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show brokers, controller, quorum and partitions with their epochs; or the logs of one
    broker."""
    if broker is not None:
        _describe_one(broker, bootstrap, output, as_json, timeout)
        return
    from appliance.kafka import standing

    told = _statuses() if bootstrap is None else []

    async def work(cluster: "Cluster") -> "ClusterState":
        return await standing.ask(cluster, told)

    found = with_cluster(bootstrap, timeout, work)
    brokers, partitions = standing.broker_rows(found), standing.partition_rows(found)
    quorum = standing.quorum_row(found, round(time.time() * 1000))
    counted = standing.counts(found)
    if as_json or output is OutputFormat.JSON:
        print_json(
            "cluster/1",
            {
                "cluster_id": found.metadata.cluster_id,
                "controller": found.controller_id,
                "brokers": brokers,
                "quorum": quorum,
                "counts": counted,
                "partitions": partitions,
            },
        )
        return
    if output is not OutputFormat.TABLE:
        emit("partitions/1", partitions, output, heads=("topic", "partition"))
        return
    say(f"cluster {found.metadata.cluster_id}: {_words(counted)}")
    emit("brokers/1", [_short(row) for row in brokers], output)
    if quorum is not None:
        epoch, committed = quorum["epoch"], quorum["high_watermark"]
        say(f"\nquorum: leader {quorum['leader']}, epoch {epoch}, committed below {committed}")
        emit("quorum/1", quorum["replicas"], output)
    say("\npartitions")
    emit("partitions/1", partitions, output)


def _words(counted: dict[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in counted.items())


def _short(row: Row) -> Row:
    """Return a broker's row with fewer columns, so that the table is not too wide. The JSON output
    has all columns."""
    return {key: value for key, value in row.items() if key not in ("listeners", "incarnation")}


def _statuses() -> list[dict[str, Any]]:
    """Ask the mill's own brokers for their status, all at once; leave out those that do not
    answer."""
    from appliance.mill.parts import broker_names
    from appliance.supervisor.copies import statuses
    from protocol.status import StatusUnavailable

    mill = context.mill_as_it_runs()
    own = set(broker_names(mill.config))
    told = statuses({part.name: (part.host, part.port) for part in mill.parts if part.name in own})
    return [one for one in told.values() if not isinstance(one, StatusUnavailable)]


def _describe_one(
    broker: int, bootstrap: str | None, output: OutputFormat, as_json: bool, timeout: float
) -> None:
    """Show the logs of one broker: their folders, their sizes, and their lag."""
    from protocol.client.log_admin import describe_log_dirs

    async def work(cluster: "Cluster") -> list[Row]:
        if broker not in cluster.current.brokers:
            known = ", ".join(map(str, sorted(cluster.current.brokers)))
            raise CommandError(
                f"there is no broker {broker}; the brokers of this cluster are {known}",
                Exit.NOT_FOUND,
            )
        found = (await describe_log_dirs(cluster, [broker]))[broker]
        if not isinstance(found, tuple):
            raise found
        return [
            {
                "broker": broker,
                "folder": folder.path,
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "size_bytes": one.size_bytes,
                "offset_lag": one.offset_lag,
                "error": folder.error.name if folder.error else None,
            }
            for folder in found
            for one in sorted(folder.replicas, key=lambda one: one.tp)
        ]

    rows = with_cluster(bootstrap, timeout, work)
    emit("broker/1", rows, output, as_json, heads=("broker", "folder"))

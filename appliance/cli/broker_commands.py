"""`millrace broker`: who is in the cluster, and where its logs lie."""

from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    JsonOption,
    Output,
    OutputOption,
    Row,
    TimeoutOption,
    emit,
    with_cluster,
)
from appliance.cli.output import CommandError, Exit

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

app = typer.Typer(no_args_is_help=True, help="Brokers of the cluster.")


@app.command("list")
def list_brokers(
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Every broker, whether it answers, and how many partitions it leads and holds."""
    from appliance.kafka.versions import broker_versions
    from protocol.client.topic_details import list_topics

    async def work(cluster: "Cluster") -> list[Row]:
        topics = await list_topics(cluster)
        partitions = [one for topic in topics.values() for one in topic.partitions]
        controller = cluster.current.controller_id
        return [
            {
                "broker": one.broker.node_id,
                "address": f"{one.broker.host}:{one.broker.port}",
                "rack": one.broker.rack,
                "controller": one.broker.node_id == controller,
                "answers": isinstance(one.ranges, dict),
                "leads": sum(p.leader_id == one.broker.node_id for p in partitions),
                "replicas": sum(one.broker.node_id in p.replicas for p in partitions),
                "in_sync": sum(one.broker.node_id in p.in_sync_replicas for p in partitions),
            }
            for one in await broker_versions(cluster)
        ]

    rows = with_cluster(bootstrap, timeout, work)
    emit("brokers/1", rows, output, as_json)
    if not all(row["answers"] for row in rows):
        raise typer.Exit(Exit.CONDITION)


@app.command()
def describe(
    broker: Annotated[int, typer.Argument(help="Its id.")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """The logs of one broker: where they lie, how large they are, how far behind."""
    from protocol.client.log_admin import describe_log_dirs

    async def work(cluster: "Cluster") -> list[Row]:
        if broker not in cluster.current.brokers:
            known = ", ".join(map(str, sorted(cluster.current.brokers)))
            raise CommandError(f"there is no broker {broker}; there are {known}", Exit.NOT_FOUND)
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
    emit("broker/1", rows, output, as_json, heads=() if rows else ("broker", "folder"))

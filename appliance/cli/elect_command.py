"""`millrace elect-leader`: give leaderships back to preferred replicas, or elect without one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    DryRunOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    Row,
    TimeoutOption,
    YesOption,
    ask,
    complete_topics,
    emit,
    with_cluster,
)
from appliance.output import CommandError, Exit, counted, say

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster
    from protocol.errors import ApiError
    from protocol.types import TopicPartition

CONSENT = "lose records"
"""The words that must be typed before an unclean election."""

PREFERRED, UNCLEAN = "preferred", "unclean"


def elect_leader(
    partitions: Annotated[
        list[str] | None,
        typer.Argument(help="TOPIC or TOPIC:PARTITION.", autocompletion=complete_topics),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All partitions that need an election.")
    ] = False,
    file: Annotated[
        str | None, typer.Option("--file", help="Kafka's JSON file of partitions.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            help="preferred: the first replica, if it is in sync. unclean: any live replica, if"
            " none is in sync; records can be lost.",
        ),
    ] = PREFERRED,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Elect preferred leaders, or any live replica where none is in sync.

    An unclean election can lose records, so it asks first.
    """
    if kind not in (PREFERRED, UNCLEAN):
        raise CommandError(f"found --type {kind}, expected {PREFERRED} or {UNCLEAN}", Exit.USAGE)
    if sum((bool(partitions), everything, file is not None)) != 1:
        raise CommandError("expected TOPIC, TOPIC:PARTITION, --all or --file FILE", Exit.USAGE)
    named = _named(bootstrap, timeout, partitions or [], file)
    if kind == UNCLEAN:
        named = _consented(bootstrap, timeout, named, yes, dry_run)
        if not named:
            emit("elect-leader/1", [], output, as_json)
        if not named or dry_run:
            return
    elif dry_run:
        raise CommandError(
            "--dry-run has an effect only with --type unclean, which can lose records", Exit.USAGE
        )
    _elect(bootstrap, timeout, kind, named, output, as_json)


def _elect(
    bootstrap: str | None,
    timeout: float,
    kind: str,
    named: "list[TopicPartition] | None",
    output: OutputFormat,
    as_json: bool,
) -> None:
    from protocol.client.election_admin import ElectionType, elect_leaders
    from protocol.errors import ErrorCode

    wanted = ElectionType.PREFERRED if kind == PREFERRED else ElectionType.UNCLEAN
    found: dict[TopicPartition, ApiError | None] = with_cluster(
        bootstrap, timeout, lambda cluster: elect_leaders(cluster, wanted, named)
    )
    rows: list[Row] = []
    for tp, error in sorted(found.items()):
        outcome, why = "elected", None
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            outcome = "not needed"
        elif error is not None:
            outcome, why = "failed", error.message
        rows.append(
            {"topic": tp.topic, "partition": tp.partition, "outcome": outcome, "error": why}
        )
    emit("elect-leader/1", rows, output, as_json, nothing="no partition needs an election")
    if any(row["error"] for row in rows):
        raise typer.Exit(Exit.FAILED)


def _named(
    bootstrap: str | None, timeout: float, words: list[str], file: str | None
) -> "list[TopicPartition] | None":
    """Return the partitions that the arguments name; None for all."""
    from appliance.kafka_tools.leader_election import read_partitions
    from protocol.client.topic_details import describe_topics
    from protocol.types import TopicPartition

    if file is not None:
        return sorted(read_partitions(file))
    if not words:
        return None
    topics: set[str] = set()
    named: set[TopicPartition] = set()
    for word in words:
        # The name of a topic cannot contain a colon.
        name, colon, number = word.partition(":")
        if colon and not (number.isascii() and number.isdigit()):
            raise CommandError(f"found {word!r}, expected TOPIC or TOPIC:PARTITION", Exit.USAGE)
        topics.add(name)
        if colon:
            named.add(TopicPartition(name, int(number)))

    async def work(cluster: "Cluster") -> Any:
        return await describe_topics(cluster, topics)

    found = with_cluster(bootstrap, timeout, work)
    for name in sorted(topics):
        if found[name].error:
            raise CommandError(f"topic {name!r} does not exist", Exit.NOT_FOUND)
        if name in words:
            named |= {TopicPartition(name, one.partition) for one in found[name].partitions}
    return sorted(named)


def _consented(
    bootstrap: str | None,
    timeout: float,
    named: "list[TopicPartition] | None",
    yes: bool,
    dry_run: bool,
) -> "list[TopicPartition]":
    """Show what could be lost. After the user's consent, return the partitions that need an
    election."""
    from appliance.kafka.unclean import survey

    _, elections = with_cluster(bootstrap, timeout, lambda cluster: survey(cluster, named))
    able = [one for one in elections if one.elected is not None]
    for one in elections:
        say(one.sentence())
    if not able:
        say(
            "no partition can get a leader, because no replica is in service"
            if elections
            else "no partition needs an unclean election"
        )
        if elections:
            raise typer.Exit(Exit.FAILED)
        return []
    if not dry_run and not yes:
        count = counted(len(able), "partition")
        if ask(f'records of {count} can be lost; type "{CONSENT}" to go on:') != CONSENT:
            raise typer.Abort
    return [one.tp for one in able]

"""`kafka-transactions`: show transactions and producers, and abort hanging transactions."""

import argparse
import re
import time
from collections.abc import Sequence

from appliance.kafka import transactions
from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    print_columns,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit
from protocol.client.cluster import Cluster
from protocol.client.transaction_admin import (
    ProducerDetails,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

COMMANDS = (
    *("list", "describe", "describe-producers", "abort", "find-hanging"),
    "forceTerminateTransaction",
)
MAX_TRANSACTION_TIMEOUT_MINUTES = 15


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("transactions", "Show transactions, and abort those that hang.")
    parser.connects()
    add = parser.add_argument
    add("command", choices=COMMANDS, metavar="COMMAND", nargs="?", help=", ".join(COMMANDS))
    add("--transactional-id", "--transactionalId", help="forceTerminateTransaction has the latter.")
    add("--transactional-id-pattern", metavar="REGEX")
    add("--duration-filter", type=int, default=-1, metavar="MS")
    add("--topic")
    for name in ("partition", "broker-id", "start-offset", "producer-id", "producer-epoch"):
        add(f"--{name}", type=int)
    add("--coordinator-epoch", type=int)
    add(
        "--max-transaction-timeout",
        type=int,
        default=MAX_TRANSACTION_TIMEOUT_MINUTES,
        metavar="MINUTES",
    )
    return parser


def _work(options: argparse.Namespace) -> None:
    if options.command is None:
        raise UsageFault(f"expected a command: {', '.join(COMMANDS)}")
    _check(options)
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            try:
                await _COMMANDS[options.command](cluster, options)
            except ApiError as error:
                missing = error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                code = Exit.NOT_FOUND if missing else Exit.FAILED
                raise CommandError(error.message, code) from error

    run(work())


def _check(options: argparse.Namespace) -> None:
    try:
        re.compile(options.transactional_id_pattern or "")
    except re.error as error:
        raise UsageFault(f"{options.transactional_id_pattern} is an invalid regex.") from error
    needed = {
        "describe": ("transactional-id",),
        "forceTerminateTransaction": ("transactional-id",),
        "describe-producers": ("topic", "partition"),
        "abort": ("topic", "partition"),
    }.get(options.command, ())
    for name in needed:
        if getattr(options, name.replace("-", "_")) is None:
            raise UsageFault(f"argument --{name} is required")
    if options.command == "find-hanging" and options.broker_id is None and options.topic is None:
        raise UsageFault(
            "The `find-hanging` command requires either --topic or --broker-id"
            " to limit the scope of the search"
        )
    if options.command == "find-hanging" and options.partition is not None and not options.topic:
        raise UsageFault("The --partition argument requires --topic to be provided")
    if options.command == "abort" and (options.start_offset is None) == (
        options.producer_id is None
    ):
        raise UsageFault(
            "The transaction to abort must be identified either with --start-offset or with"
            " [--producer-id, --producer-epoch, --coordinator-epoch]"
        )
    if options.producer_id is not None and None in (
        options.producer_epoch,
        options.coordinator_epoch,
    ):
        raise UsageFault("--producer-id needs --producer-epoch and --coordinator-epoch")


async def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    found, failures = await list_transactions(cluster)
    pattern = re.compile(options.transactional_id_pattern or "")
    rows = []
    for one in found:
        if options.transactional_id_pattern and not pattern.fullmatch(one.transactional_id):
            continue
        if options.duration_filter >= 0:
            details = await describe_transaction(cluster, one.transactional_id)
            started = details.start_time_ms
            if started is None or _now_ms() - started < options.duration_filter:
                continue
        rows.append([one.transactional_id, one.coordinator_id, one.producer_id, one.state])
    print_columns(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)
    if failures:
        node_id, error = next(iter(failures.items()))
        raise CommandError(
            f"broker {node_id} has not reported its transactions: {transactions.words_of(error)}",
            Exit.FAILED,
        )


async def _describe(cluster: Cluster, options: argparse.Namespace) -> None:
    try:
        one = await describe_transaction(cluster, options.transactional_id)
    except ApiError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        name = options.transactional_id
        raise CommandError(
            f"Failed to describe transaction state of transactional-id `{name}`:"
            f" DescribeTransactions request for transactionalId `{name}` failed because the ID"
            " could not be found.",
            Exit.NOT_FOUND,
        ) from error
    started = one.start_time_ms
    heads = [
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    ]
    row = [
        *(one.coordinator_id, one.transactional_id, one.producer_id, one.producer_epoch),
        *(one.state, one.timeout_ms, started),
        None if started is None else _now_ms() - started,
        ",".join(map(str, sorted(one.partitions))),
    ]
    print_columns(heads, [row])


async def _describe_producers(cluster: Cluster, options: argparse.Namespace) -> None:
    tp = TopicPartition(options.topic, options.partition)
    producers = await _producers(cluster, tp, options.broker_id)
    heads = [
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
        *("LastTimestamp", "CurrentTransactionStartOffset"),
    ]
    rows = [
        [
            *(one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence),
            *(one.last_timestamp_ms, one.transaction_start_offset),
        ]
        for one in producers
    ]
    print_columns(heads, rows)


async def _producers(
    cluster: Cluster, tp: TopicPartition, node_id: int | None
) -> list[ProducerDetails]:
    found = (await describe_producers(cluster, [tp], node_id=node_id))[tp]
    if not isinstance(found, list):
        raise CommandError(
            f"Failed to describe producers for partition {tp}: {transactions.words_of(found)}",
            Exit.FAILED,
        )
    return found


async def _abort(cluster: Cluster, options: argparse.Namespace) -> None:
    tp = TopicPartition(options.topic, options.partition)
    producer_id, epoch = options.producer_id, options.producer_epoch
    coordinator_epoch = options.coordinator_epoch
    if options.start_offset is not None:
        fitting = [
            one
            for one in await _producers(cluster, tp, None)
            if one.transaction_start_offset == options.start_offset
        ]
        if not fitting:
            raise CommandError(
                f"Could not find any open transactions starting at offset {options.start_offset}"
                f" on partition {tp}",
                Exit.NOT_FOUND,
            )
        producer_id, epoch = fitting[0].producer_id, fitting[0].producer_epoch
        coordinator_epoch = max(0, fitting[0].coordinator_epoch)
    await abort_transaction(
        cluster,
        tp,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
    )


async def _find_hanging(cluster: Cluster, options: argparse.Namespace) -> None:
    tps = await transactions.partitions_at(
        cluster, options.broker_id, options.topic, options.partition
    )
    since_ms = _now_ms() - options.max_transaction_timeout * 60_000
    found = await transactions.find_hanging(
        cluster, tps, open_since_ms=since_ms, node_id=options.broker_id
    )
    heads = [
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"),
        *("StartOffset", "LastTimestamp", "Duration(min)"),
    ]
    rows = [
        [
            *(one.tp.topic, one.tp.partition, one.producer.producer_id),
            *(one.producer.producer_epoch, one.producer.coordinator_epoch),
            *(one.producer.transaction_start_offset, one.producer.last_timestamp_ms),
            (_now_ms() - one.producer.last_timestamp_ms) // 60_000,
        ]
        for one in found
    ]
    print_columns(heads, rows)


async def _force_terminate(cluster: Cluster, options: argparse.Namespace) -> None:
    await transactions.force_terminate(cluster, options.transactional_id)


def _now_ms() -> int:
    return round(time.time() * 1000)


_COMMANDS = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "abort": _abort,
    "find-hanging": _find_hanging,
    "forceTerminateTransaction": _force_terminate,
}

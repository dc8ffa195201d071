"""`kafka-log-dirs`: shows the folders and the sizes of replicas."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.log_admin import LogDir, describe_log_dirs
from protocol.errors import ApiError


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("log-dirs", "Show where replicas are, and how large they are.")
    parser.connects()
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--topic-list", metavar="a,b")
    parser.add_argument("--broker-list", metavar="1,2")
    return parser


def _work(options: argparse.Namespace) -> int:
    if not options.describe:
        raise UsageFault('Missing required argument "[describe]"')
    topics = _split(options.topic_list)
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> int:
        async with open_cluster(servers) as cluster:
            there = sorted(cluster.current.brokers)
            wanted = _numbers(options.broker_list) or there
            if unknown := [node_id for node_id in wanted if node_id not in there]:
                raise CommandError(
                    f"ERROR: The given brokers do not exist from --broker-list: {_ids(unknown)}."
                    f" Current existent brokers: {_ids(there)}",
                    Exit.NOT_FOUND,
                )
            out("Querying brokers for log directories information")
            found = await describe_log_dirs(cluster, wanted)
        good = {node_id: one for node_id, one in found.items() if isinstance(one, tuple)}
        out(f"Received log directory information from brokers {_ids(sorted(good))}")
        brokers = [broker_json(node_id, dirs, topics) for node_id, dirs in sorted(good.items())]
        out(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
        for node_id, error in found.items():
            if not isinstance(error, tuple):
                words = error.message if isinstance(error, ApiError) else str(error)
                raise CommandError(
                    f"broker {node_id} has not reported its folders: {words}", Exit.FAILED
                )
        return Exit.OK

    return run(work())


def broker_json(node_id: int, dirs: Sequence[LogDir], topics: Sequence[str]) -> dict[str, Any]:
    """Return the folders of one broker, with all replicas or only those of some topics."""
    return {
        "broker": node_id,
        "logDirs": [
            {
                "partitions": [
                    {
                        "partition": str(one.tp),
                        "size": one.size_bytes,
                        "offsetLag": one.offset_lag,
                        "isFuture": one.is_future,
                    }
                    for one in sorted(folder.replicas, key=lambda one: one.tp)
                    if not topics or one.tp.topic in topics
                ],
                "error": folder.error.name if folder.error else None,
                "logDir": folder.path,
            }
            for folder in dirs
        ],
    }


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(part) for part in _split(text)]
    except ValueError as error:
        raise UsageFault(f"found --broker-list {text}, expected ids such as 1,2") from error


def _ids(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))

"""`kafka-delete-records`: move the log start offset of partitions forward."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.errors import ClientError
from protocol.client.log_admin import delete_records
from protocol.errors import ApiError
from protocol.types import TopicPartition

EXPECTED = 'expected {"partitions":[{"topic":"t","partition":0,"offset":10}],"version":1}'


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("delete-records", "Delete records of partitions below given offsets.")
    parser.connects()
    parser.add_argument("--offset-json-file", metavar="FILE", help=EXPECTED)
    return parser


def _work(options: argparse.Namespace) -> int:
    if not options.offset_json_file:
        raise UsageFault('Missing required argument "[offset-json-file]"')
    offsets = read_plan(options.offset_json_file)
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> int:
        async with open_cluster(servers) as cluster:
            out("Executing records delete operation")
            found = await delete_records(cluster, offsets)
        out("Records delete operation completed:")
        code = Exit.OK
        for tp, outcome in sorted(found.items()):
            if isinstance(outcome, int):
                out(f"partition: {tp}\tlow_watermark: {outcome}")
            else:
                code = Exit.FAILED
                out(f"partition: {tp}\terror: {_words(outcome)}")
        return code

    return run(work())


def _words(error: ApiError | ClientError) -> str:
    return error.message if isinstance(error, ApiError) else str(error)


def read_plan(path: str) -> dict[TopicPartition, int]:
    """Read the offsets from a file. Raises CommandError."""
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
        if plan.get("version", 1) != 1:
            raise CommandError(f"{path}: version {plan['version']}, {EXPECTED}", Exit.USAGE)
        found: dict[TopicPartition, int] = {}
        for one in plan["partitions"]:
            tp = TopicPartition(str(one["topic"]), int(one["partition"]))
            if tp in found:
                raise CommandError(
                    f"Offset json file contains duplicate topic partitions: {tp}", Exit.USAGE
                )
            found[tp] = int(one["offset"])
        return found
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path}: {EXPECTED}", Exit.USAGE) from error

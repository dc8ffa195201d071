"""`kafka-leader-election`: elect preferred replicas, or any live replica if none is in sync."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    one_of,
    read_properties,
    renamed,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.election_admin import ElectionType, elect_leaders
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

EXPECTED = 'expected {"partitions":[{"topic":"t","partition":0}]}'
CHOICES = ("topic", "all-topic-partitions", "path-to-json-file")


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("leader-election", "Elect leaders of partitions.")
    parser.connects()
    parser.add_argument(
        "--admin.config",
        dest="command_config",
        action=renamed("admin.config", "command-config"),
        metavar="FILE",
        help="The old name of --command-config.",
    )
    parser.add_argument(
        "--election-type",
        type=str.upper,
        choices=[one.name for one in ElectionType],
        metavar="preferred|unclean",
        help="preferred: the first replica, if it is in sync; unclean: any live replica if"
        " none is in sync, which loses the records it lacks.",
    )
    parser.add_argument("--topic", metavar="TOPIC", help="With --partition, the one to elect for.")
    parser.add_argument("--partition", type=int, metavar="NUMBER", help="Only with --topic.")
    parser.add_argument("--path-to-json-file", metavar="FILE", help=EXPECTED)
    parser.add_argument(
        "--all-topic-partitions", action="store_true", help="All partitions that need an election."
    )
    return parser


def _work(options: argparse.Namespace) -> int:
    servers = servers_of(options, read_properties(options.command_config))
    if options.election_type is None:
        raise UsageFault("Missing required option(s): election-type")
    election_type = ElectionType[options.election_type]
    partitions = _partitions(options)

    async def work() -> dict[TopicPartition, ApiError | None]:
        async with open_cluster(servers) as cluster:
            return await elect_leaders(cluster, election_type, partitions)

    return _tell(election_type, run(work()))


def _partitions(options: argparse.Namespace) -> set[TopicPartition] | None:
    """Return the named partitions; None for all. Raises UsageFault and CommandError."""
    complaint = f"One and only one of the following options is required: {', '.join(CHOICES)}"
    chosen = one_of(options, CHOICES, complaint)
    if chosen != "topic" and options.partition is not None:
        raise UsageFault("Option partition is only allowed if topic is used")
    if chosen == "path-to-json-file":
        return read_partitions(options.path_to_json_file)
    if chosen == "all-topic-partitions":
        return None
    if options.partition is None:
        raise UsageFault("Missing required option(s): partition")
    return {TopicPartition(options.topic, options.partition)}


def read_partitions(path: str) -> set[TopicPartition]:
    """Read partitions from a file. Raises CommandError."""
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["partitions"]
        named = [TopicPartition(str(one["topic"]), int(one["partition"])) for one in rows]
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: {EXPECTED}", Exit.USAGE) from error
    twice = sorted({str(one) for one in named if named.count(one) > 1})
    if twice:
        text = f"{path}: Replica election data contains duplicate partitions: {', '.join(twice)}"
        raise CommandError(text, Exit.USAGE)
    return set(named)


def _tell(election_type: ElectionType, found: dict[TopicPartition, ApiError | None]) -> int:
    done = [str(tp) for tp, error in sorted(found.items()) if error is None]
    errors = [(tp, error) for tp, error in sorted(found.items()) if error is not None]
    valid = [str(tp) for tp, error in errors if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = [one for one in errors if one[1].code is not ErrorCode.ELECTION_NOT_NEEDED]
    if done:
        names = ", ".join(done)
        out(f"Successfully completed leader election ({election_type.name}) for partitions {names}")
    if valid:
        out(f"Valid replica already elected for partitions {', '.join(valid)}")
    for tp, error in failed:
        out(
            f"Error completing leader election ({election_type.name}) for partition: {tp}:"
            f" {error.message}"
        )
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")
    return Exit.OK

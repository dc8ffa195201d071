"""`kafka-get-offsets`: shows the offsets of partitions at a given time."""

import argparse
from collections.abc import Sequence

from appliance.kafka.offsets import filter_of_names, filter_of_ranges, offsets
from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out, say
from protocol.types import (
    EARLIEST_TIMESTAMP,
    INT64_MAX,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
)

TIMES = {
    "latest": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "max-timestamp": MAX_TIMESTAMP,
}
# The special times of tiered storage, which brokers with a supported version do not have.
TIERED = {
    "-4": "earliest-local",
    "-5": "latest-tiered",
    "-6": "earliest-pending-upload",
    **{name: name for name in ("earliest-local", "latest-tiered", "earliest-pending-upload")},
}


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work, failed=_failed)


def _parser() -> ToolParser:
    parser = ToolParser("get-offsets", "Print the offsets of partitions.")
    parser.connects()
    add = parser.add_argument
    add("--broker-list", dest="bootstrap_server", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add("--topic", metavar="REGEX")
    add("--partitions", metavar="0,1,…")
    add("--topic-partitions", metavar="t:1,u:0-3,:2")
    add("--time", default="latest", metavar="MS|latest|earliest|max-timestamp")
    add("--exclude-internal-topics", action="store_true")
    return parser


def _failed(error: CommandError) -> None:
    say(f"Error occurred: {error}")


def _work(options: argparse.Namespace) -> int:
    if options.topic_partitions and (options.topic or options.partitions):
        raise CommandError(
            "--topic-partitions cannot be used with --topic or --partitions", Exit.USAGE
        )
    timestamp = timestamp_of(options.time)
    if options.topic_partitions:
        is_meant = filter_of_ranges(options.topic_partitions)
    else:
        is_meant = filter_of_names(options.topic, _numbers(options.partitions))
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> int:
        async with open_cluster(servers) as cluster:
            found = await offsets(
                cluster, is_meant, timestamp, with_internal=not options.exclude_internal_topics
            )
        if not found:
            raise CommandError(
                "Could not match any topic-partitions with the specified filters", Exit.NOT_FOUND
            )
        code = Exit.OK
        for tp, at in found.items():
            if at.error:
                code = Exit.FAILED
                say(f"Skip getting offsets for topic-partition {tp}: {at.error.description}")
            elif at.offset != NO_OFFSET:
                out(f"{tp.topic}:{tp.partition}:{at.offset}")
        return code

    return run(work())


def timestamp_of(text: str) -> int:
    """Return the timestamp to ask a broker for, from `--time`. Raises CommandError."""
    if text in TIERED:
        name = TIERED[text]
        raise CommandError(f"{name} belongs to tiered storage, which is not supported", Exit.FAILED)
    if text in TIMES:
        return TIMES[text]
    try:
        found = int(text)
        if abs(found) > INT64_MAX:
            raise ValueError(f"found the time {found}, expected a number that fits into 64 bits")
        return found
    except ValueError as error:
        names = " / ".join(
            f"{number} or {name}"
            for number, name in (
                *((value, name) for name, value in TIMES.items()),
                *((key, name) for key, name in TIERED.items() if key.startswith("-")),
            )
        )
        raise CommandError(
            f"Malformed time argument {text}. Please use {names}, or a specified long format"
            " timestamp",
            Exit.USAGE,
        ) from error


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageFault(f"found --partitions {text}, expected numbers such as 0,1") from error

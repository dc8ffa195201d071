"""`kafka-console-consumer`: print records as lines."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.kafka.consume import BeginAt, Beginning, ReadRecord, ReadRequest, read
from appliance.kafka.records import DESERIALIZERS, Deserializer, UndecodableBytes
from appliance.kafka.session import open_cluster, run
from appliance.kafka.topics import Matcher
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    properties_of,
    read_properties,
    renamed,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, say
from protocol.client.errors import UnreadableBatch
from protocol.types import NO_LEADER_EPOCH, NO_TIMESTAMP

FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter")
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
RESETS = {"earliest": BeginAt.START, "latest": BeginAt.END}
NOT_PRESENT = "NOT_PRESENT"


@dataclass(frozen=True, slots=True)
class Formatter:
    """The parts of a record that are printed, and the text between them."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    delivery: bool = False
    epoch: bool = False
    headers: bool = False
    key: bool = False
    value: bool = True
    separator: bytes = b"\t"
    line_end: bytes = b"\n"
    headers_separator: bytes = b","
    null: bytes = b"null"
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def line(self, one: ReadRecord) -> bytes:
        """Return the printed form of a record, with the line end."""
        record = one.record
        parts = []
        if self.timestamp:
            parts.append(_timestamp(one))
        if self.partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.delivery:
            parts.append(f"Delivery:{NOT_PRESENT}".encode())
        if self.epoch:
            known = one.leader_epoch != NO_LEADER_EPOCH
            parts.append(f"Epoch:{one.leader_epoch if known else NOT_PRESENT}".encode())
        if self.headers:
            parts.append(self._headers(one))
        if self.key:
            parts.append(self._text(record.key, self.key_deserializer))
        if self.value:
            parts.append(self._text(record.value, self.value_deserializer))
        return self.separator.join(parts) + self.line_end

    def _headers(self, one: ReadRecord) -> bytes:
        if not one.record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._text(value, None) for name, value in one.record.headers
        )

    def _text(self, value: bytes | None, deserializer: Deserializer | None) -> bytes:
        if value is None:
            return self.null
        return value if deserializer is None else deserializer(value)


def _timestamp(one: ReadRecord) -> bytes:
    if one.record.timestamp_ms == NO_TIMESTAMP:
        return b"NO_TIMESTAMP"
    kind = b"LogAppendTime" if one.is_log_append_time else b"CreateTime"
    return b"%s:%d" % (kind, one.record.timestamp_ms)


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("console-consumer", "Print the records of topics.")
    parser.connects(with_config=False)
    add = parser.add_argument
    add("--topic")
    add("--include", metavar="REGEX")
    add("--whitelist", dest="include", action=renamed("whitelist", "include"))
    add("--partition", type=int)
    add("--offset", metavar="earliest|latest|N")
    add("--group")
    add("--from-beginning", action="store_true")
    add("--max-messages", type=int)
    add("--timeout-ms", type=int)
    add("--isolation-level", choices=[*ISOLATION])
    add("--formatter", default=FORMATTERS[0], metavar="CLASS")
    add("--formatter-property", action="append", default=[], metavar="NAME=VALUE")
    add("--formatter-config", metavar="FILE")
    add("--key-deserializer", metavar="CLASS")
    add("--value-deserializer", metavar="CLASS")
    add(
        "--skip-message-on-error",
        action="store_true",
        help="Skip records that cannot be decoded and batches that cannot be opened.",
    )
    add("--enable-systest-events", action="store_true", help="Accepted, without effect.")
    add("--command-property", action="append", default=[], metavar="NAME=VALUE")
    add("--command-config", metavar="FILE")
    for old, new in (("property", "formatter-property"), ("consumer-property", "command-property")):
        add(f"--{old}", dest=new.replace("-", "_"), action=renamed(old, new), default=[])
    add(
        "--consumer.config",
        dest="command_config",
        action=renamed("consumer.config", "command-config"),
    )
    return parser


def _work(options: argparse.Namespace) -> None:
    properties = {
        **read_properties(options.command_config),
        **properties_of(options.command_property),
    }
    wanted = wanted_of(options, properties)
    formatter = _formatter(options)
    servers = servers_of(options, properties)
    write = sys.stdout.buffer.write
    is_silent = options.formatter.rsplit(".", 1)[-1] == "NoOpMessageFormatter"
    count = 0

    def hand_out(one: ReadRecord) -> None:
        nonlocal count
        count += 1
        if is_silent:
            return
        try:
            write(formatter.line(one))
        except UndecodableBytes as error:
            record = one.record
            told = f"{record.topic}-{record.partition}, offset {record.offset}: {error}"
            if not options.skip_message_on_error:
                raise CommandError(told, Exit.FAILED) from error
            say(f"{told}; skipped")
        sys.stdout.buffer.flush()

    async def work() -> None:
        async with open_cluster(
            servers, client_id=properties.get("client.id", "console-consumer")
        ) as cluster:
            await read(cluster, wanted, hand_out)

    try:
        run(work())
    finally:
        say(f"Processed a total of {count} messages")


def wanted_of(options: argparse.Namespace, properties: dict[str, str]) -> ReadRequest:
    """Return the read request that the options describe.

    Raises UsageFault for options that exclude each other, and CommandError for a bad pattern.
    """
    topic, include = options.topic, options.include
    if (topic is None) == (include is None):
        raise UsageFault("Exactly one of the following arguments is required: [topic], [include]")
    Matcher(include)
    group = options.group or properties.get("group.id")
    if options.group and properties.get("group.id", options.group) != options.group:
        raise UsageFault(
            "The group ids provided in different places (directly using '--group', via"
            " '--command-property', or via '--command-config') do not match."
        )
    if options.partition is not None:
        if topic is None:
            raise UsageFault("The topic is required when partition is specified.")
        if options.group:
            raise UsageFault("Options group and partition cannot be specified together.")
    elif options.offset is not None:
        raise UsageFault("The partition is required when offset is specified.")
    if options.from_beginning and options.offset is not None:
        raise UsageFault("Options from-beginning and offset cannot be specified together.")
    isolation = options.isolation_level or properties.get("isolation.level", "read_uncommitted")
    return ReadRequest(
        topics=() if topic is None else (topic,),
        pattern=include,
        partitions=None if options.partition is None else (options.partition,),
        beginning=_beginning(options, properties),
        group_id=group if options.partition is None else None,
        auto_commit=properties.get("enable.auto.commit", "true") == "true",
        isolation_level=ISOLATION[isolation],
        count_max=options.max_messages if (options.max_messages or 0) > 0 else None,
        idle_ms=options.timeout_ms if (options.timeout_ms or 0) > 0 else None,
        skipped=_say_skipped if options.skip_message_on_error else None,
    )


def _say_skipped(error: UnreadableBatch) -> None:
    say(f"{error}; skipped")


def _beginning(options: argparse.Namespace, properties: dict[str, str]) -> Beginning:
    text = options.offset
    if text is None:
        reset = properties.get("auto.offset.reset", "latest")
        if reset not in RESETS:
            raise UsageFault(f"auto.offset.reset is {reset}, expected earliest or latest")
        return Beginning(BeginAt.START if options.from_beginning else RESETS[reset])
    if text.lower() in RESETS:
        return Beginning(RESETS[text.lower()])
    if not text.isdecimal():
        raise UsageFault(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest',"
            " 'latest', or a non-negative long."
        )
    return Beginning(BeginAt.OFFSET, int(text))


def _formatter(options: argparse.Namespace) -> Formatter:
    if options.formatter.rsplit(".", 1)[-1] not in FORMATTERS:
        raise CommandError(
            f"--formatter {options.formatter}: expected {' or '.join(FORMATTERS)};"
            " kafka-dump-log decodes the logs of groups and transactions",
            Exit.USAGE,
        )
    given: dict[str, str] = {}
    if options.formatter_config:
        try:
            lines = Path(options.formatter_config).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise CommandError(
                f"{options.formatter_config} cannot be read: {error.strerror}", Exit.USAGE
            ) from error
        given.update(properties_of([line for line in lines if line.strip()]))
    given.update(properties_of(options.formatter_property))

    def is_on(name: str, default: bool = False) -> bool:
        return given.get(name, str(default)).strip().lower() == "true"

    def text(name: str, default: str) -> bytes:
        return given.get(name, default).encode()

    return Formatter(
        timestamp=is_on("print.timestamp"),
        partition=is_on("print.partition"),
        offset=is_on("print.offset"),
        delivery=is_on("print.delivery"),
        epoch=is_on("print.epoch"),
        headers=is_on("print.headers"),
        key=is_on("print.key"),
        value=is_on("print.value", True),
        separator=text("key.separator", "\t"),
        line_end=text("line.separator", "\n"),
        headers_separator=text("headers.separator", ","),
        null=text("null.literal", "null"),
        key_deserializer=_deserializer(options.key_deserializer or given.get("key.deserializer")),
        value_deserializer=_deserializer(
            options.value_deserializer or given.get("value.deserializer")
        ),
    )


def _deserializer(name: str | None) -> Deserializer | None:
    if name is None:
        return None
    short = name.rsplit(".", 1)[-1]
    if short not in DESERIALIZERS:
        text = f"found deserializer {name}, expected one of {', '.join(DESERIALIZERS)}"
        raise CommandError(text, Exit.USAGE)
    return DESERIALIZERS[short]

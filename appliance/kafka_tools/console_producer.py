"""`kafka-console-producer`: send lines as records."""

import argparse
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from appliance.kafka.lines import LineFault, LineFormat, parse_line
from appliance.kafka.produce import ProduceTally, RecordToSend, lines_of, send
from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    properties_of,
    read_properties,
    renamed,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGER_MS = 1_000
BATCH_BYTES = 16_384
MAX_BLOCK_MS = 60_000
LINE_READER = "LineMessageReader"


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser("console-producer", "Send lines of standard input to a topic.")
    parser.connects(with_config=False)
    add = parser.add_argument
    add("--topic")
    add("--sync", action="store_true", help="Accepted; the command waits for every record anyway.")
    add("--compression-codec", nargs="?", const="gzip", choices=CODECS)
    add("--request-required-acks", choices=[*ACKS])
    add("--batch-size", type=int)
    add(
        "--timeout", type=int, metavar="MS", help="How long a line waits to be batched with others."
    )
    add("--max-block-ms", type=int, default=MAX_BLOCK_MS)
    add("--request-timeout-ms", type=int)
    for name in ("message-send-max-retries", "retry-backoff-ms", "metadata-expiry-ms"):
        add(f"--{name}", type=int, help="Accepted, without effect.")
    for name in ("socket-buffer-size", "max-memory-bytes", "max-partition-memory-bytes"):
        add(f"--{name}", type=int, help="Accepted, without effect.")
    add("--line-reader", default=LINE_READER, metavar="CLASS")
    add("--reader-property", action="append", default=[], metavar="NAME=VALUE")
    add("--reader-config", metavar="FILE")
    add("--command-property", action="append", default=[], metavar="NAME=VALUE")
    add("--command-config", metavar="FILE")
    for old, new in (("property", "reader-property"), ("producer-property", "command-property")):
        add(f"--{old}", dest=new.replace("-", "_"), action=renamed(old, new), default=[])
    add(
        "--producer.config",
        dest="command_config",
        action=renamed("producer.config", "command-config"),
    )
    return parser


def _work(options: argparse.Namespace) -> int:
    if not options.topic:
        raise UsageFault('Missing required argument "[topic]"')
    properties = {
        **read_properties(options.command_config),
        **properties_of(options.command_property),
    }
    form = line_format(options)
    settings = _settings(options, properties)
    servers = servers_of(options, properties)
    tally = ProduceTally()
    faults: list[LineFault] = []

    async def records() -> AsyncIterator[RecordToSend]:
        number = 0
        _prompt()
        async for line in lines_of(sys.stdin.fileno()):
            number += 1
            try:
                parsed = parse_line(line, number, form)
            except LineFault as fault:
                # The lines before the invalid line are still sent.
                faults.append(fault)
                return
            yield RecordToSend(parsed.key, parsed.value, parsed.headers)
            _prompt()

    async def work() -> None:
        async with open_cluster(
            servers, client_id=properties.get("client.id", "console-producer")
        ) as cluster:
            await send(cluster, options.topic, records(), settings=settings, tally=tally)

    run(work())
    for fault in faults:
        raise CommandError(str(fault), Exit.FAILED)
    if tally.failed:
        reasons = "; ".join(tally.reasons or ())
        raise CommandError(f"{tally.failed} of {tally.sent} records were not stored: {reasons}")
    return Exit.OK


def _prompt() -> None:
    if sys.stdin.isatty():
        sys.stderr.write(">")
        sys.stderr.flush()


def _settings(options: argparse.Namespace, properties: dict[str, str]) -> dict[str, Any]:
    """Return the producer's settings: options first, then properties, then Kafka's defaults."""
    acks_text = options.request_required_acks or properties.get("acks", "-1")
    codec = options.compression_codec or properties.get("compression.type", "none")
    if acks_text not in ACKS:
        raise UsageFault(f"acks is {acks_text}, expected one of {', '.join(ACKS)}")
    if codec not in CODECS:
        raise UsageFault(f"compression.type is {codec}, expected one of {', '.join(CODECS)}")
    acks = ACKS[acks_text]

    def number(given: int | None, name: str, default: int) -> int:
        text = properties.get(name, str(default))
        if given is None and not text.isdecimal():
            raise UsageFault(f"{name} is {text}, expected a number")
        return int(text) if given is None else given

    settings: dict[str, Any] = {
        "required_acks": acks,
        "idempotent": acks == -1 and properties.get("enable.idempotence", "true") == "true",
        "compression": codec,
        "linger_ms": number(options.timeout, "linger.ms", LINGER_MS),
        "batch_bytes": number(options.batch_size, "batch.size", BATCH_BYTES),
        "unknown_topic_timeout_ms": options.max_block_ms,
    }
    if properties.get("transactional.id"):
        settings["transactional_id"] = properties["transactional.id"]
    return settings


def line_format(options: argparse.Namespace) -> LineFormat:
    """Return the format by which lines are split. Raises UsageFault."""
    if options.line_reader.rsplit(".", 1)[-1] != LINE_READER:
        raise UsageFault(f"--line-reader {options.line_reader}: expected {LINE_READER}")
    given: dict[str, str] = {}
    if options.reader_config:
        try:
            lines = Path(options.reader_config).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UsageFault(f"{options.reader_config} cannot be read: {error.strerror}") from error
        given.update(properties_of([line for line in lines if line.strip()]))
    given.update(properties_of(options.reader_property))

    def is_on(name: str) -> bool:
        return given.get(name, "false").strip().lower() == "true"

    try:
        return LineFormat(
            parse_key=is_on("parse.key"),
            key_separator=given.get("key.separator", "\t"),
            parse_headers=is_on("parse.headers"),
            headers_delimiter=given.get("headers.delimiter", "\t"),
            headers_separator=given.get("headers.separator", ","),
            headers_key_separator=given.get("headers.key.separator", ":"),
            null_marker=given.get("null.marker"),
            ignore_error=is_on("ignore.error"),
        )
    except ValueError as error:
        raise UsageFault(str(error)) from error

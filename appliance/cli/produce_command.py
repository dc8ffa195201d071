"""`produce`: send lines of files, or of standard input, as records."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import BootstrapOption, asked_cluster, complete_topics, connected
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import LOOK_EVERY_S, ProgressLine
from appliance.output import CommandError, Exit, tell

if TYPE_CHECKING:
    from appliance.kafka.produce import ProduceTally, RecordToSend

UNKNOWN_TOPIC_MS = 10_000
ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    topic: Annotated[str, typer.Argument(autocompletion=complete_topics)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Default: standard input.", exists=True, dir_okay=False),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", "-K", help="The text between key and value in a line."),
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name:value.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help=", ".join(CODECS))
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    rate: Annotated[
        float | None, typer.Option("--rate", help="At most this many records a second.", min=0.001)
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", help="Send in transactions, under this id.")
    ] = None,
    per_transaction: Annotated[
        int | None,
        typer.Option("--per-transaction", help="Records in each transaction. Default: all.", min=1),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Send lines as records; ends when all are stored, with code 1 if some are not."""
    from appliance.kafka.produce import ProduceTally, RecordPace, refuse_unknown, send
    from appliance.kafka.session import run

    _refuse_keys(key, key_delimiter)
    settings = _settings(acks, compression, transactional_id)
    headers = tuple(_header(text) for text in header or [])
    asked = asked_cluster(bootstrap)
    records = _records(files or [], key, key_delimiter, headers, partition)
    tally = ProduceTally()
    line = ProgressLine()

    async def work() -> None:
        async with connected(asked) as cluster:
            await refuse_unknown(cluster, topic)
            teller = asyncio.create_task(_tell(line, tally))
            try:
                await send(
                    cluster,
                    topic,
                    records,
                    settings=settings,
                    tally=tally,
                    pace=None if rate is None else RecordPace(rate),
                    per_transaction=per_transaction,
                )
            finally:
                teller.cancel()

    try:
        run(work())
    finally:
        line.end()
        words = f"{tally.stored:,} of {tally.sent:,} records stored ({line.elapsed_s:.1f} s)"
        data = {
            "topic": topic,
            "sent": tally.sent,
            "stored": tally.stored,
            "failed": tally.failed,
            "elapsed_s": round(line.elapsed_s, 3),
        }
        tell(words, "produced/1", data, as_json)
    if tally.failed:
        reasons = "; ".join(tally.reasons or ())
        raise CommandError(f"{tally.failed} of {tally.sent} records were not stored: {reasons}")


async def _tell(line: ProgressLine, tally: "ProduceTally") -> None:
    """Show the progress, also while the brokers accept nothing.

    Print nothing if the progress is the same as before.
    """
    told = 0
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if tally.sent > told or tally.sent > tally.stored + tally.failed:
            line.show(_progress_text(tally, line.elapsed_s))
            told = tally.sent


def _refuse_keys(key: str | None, delimiter: str | None) -> None:
    if key is not None and delimiter is not None:
        raise CommandError("-k and -K exclude each other", Exit.USAGE)
    if delimiter == "":
        raise CommandError("-K: expected the text between key and value, found nothing", Exit.USAGE)


def _settings(acks: str, compression: str, transactional_id: str | None) -> dict[str, Any]:
    """Return the producer settings for these options."""
    if acks not in ACKS:
        raise CommandError(f"--acks {acks}: expected all, 1 or 0", Exit.USAGE)
    if compression not in CODECS:
        text = f"-z {compression}: expected one of {', '.join(CODECS)}"
        raise CommandError(text, Exit.USAGE)
    return {
        "required_acks": ACKS[acks],
        "idempotent": acks == "all",
        "compression": compression,
        "transactional_id": transactional_id,
        "unknown_topic_timeout_ms": UNKNOWN_TOPIC_MS,
    }


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise CommandError(f"-H {text}: expected name:value", Exit.USAGE)
    return name, value.encode()


async def _records(
    files: list[Path],
    key: str | None,
    delimiter: str | None,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int | None,
) -> "AsyncIterator[RecordToSend]":
    from appliance.kafka.produce import RecordToSend

    fixed = None if key is None else key.encode()
    async for line in _lines(files):
        own, value = fixed, line
        if delimiter is not None:
            head, found, tail = line.partition(delimiter.encode())
            if not found:
                shown = line[:80].decode(errors="replace")
                raise CommandError(f"found no {delimiter!r} in {shown!r}, which -K expects")
            own, value = head, tail
        yield RecordToSend(own, value, headers, partition)


async def _lines(files: list[Path]) -> AsyncIterator[bytes]:
    from appliance.kafka.produce import lines_of

    if not files:
        async for line in lines_of(sys.stdin.fileno()):
            yield line
    for path in files:
        with path.open("rb", buffering=0) as file:
            async for line in lines_of(file.fileno()):
                yield line


def _progress_text(tally: "ProduceTally", elapsed_s: float) -> str:
    rate = tally.stored / max(0.001, elapsed_s)
    return f"{tally.sent:,} sent, {tally.stored:,} stored, {rate:,.0f} a second"

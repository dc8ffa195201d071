"""`produce`: lines of files, or of standard input, as records."""

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import BootstrapOption, complete_topics, servers
from appliance.cli.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.produce import Outgoing, Tally

CONNECT_TIMEOUT_MS = 10_000
UNKNOWN_TOPIC_MS = 10_000
TELL_EVERY_S = 0.5
LINE_EVERY_S = 5.0
ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    topic: Annotated[str, typer.Argument(autocompletion=complete_topics)],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Standard input if left out.", exists=True)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="What ends the key in a line.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="name:value.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help=", ".join(CODECS))
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    rate: Annotated[
        float | None, typer.Option("--rate", help="At most so many records a second.", min=0.001)
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", help="Send in transactions, under this id.")
    ] = None,
    per_transaction: Annotated[
        int | None,
        typer.Option("--per-transaction", help="Records in each; all if left out.", min=1),
    ] = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Send lines as records; ends when each is stored, and with code 1 if any is not."""
    from appliance.kafka.produce import Pace, Tally, send
    from appliance.kafka.session import open_cluster, run

    if key is not None and key_delimiter is not None:
        raise CommandError("-k and -K exclude each other", Exit.USAGE)
    if acks not in ACKS:
        raise CommandError(f"--acks {acks}: expected all, 1 or 0", Exit.USAGE)
    if compression not in CODECS:
        text = f"-z {compression}: expected one of {', '.join(CODECS)}"
        raise CommandError(text, Exit.USAGE)
    settings: dict[str, Any] = {
        "required_acks": ACKS[acks],
        "idempotent": acks == "all",
        "compression": compression,
        "transactional_id": transactional_id,
        "unknown_topic_timeout_ms": UNKNOWN_TOPIC_MS,
    }
    headers = tuple(_header(text) for text in header or [])
    records = _records(files or [], key, key_delimiter, headers, partition)
    tally = Tally()
    progress = _Progress()

    async def work() -> None:
        async with open_cluster(servers(bootstrap), timeout_ms=CONNECT_TIMEOUT_MS) as cluster:
            await send(
                cluster,
                topic,
                records,
                settings=settings,
                tally=tally,
                pace=None if rate is None else Pace(rate),
                per_transaction=per_transaction,
                told=progress.show,
            )

    try:
        run(work())
    finally:
        progress.end(tally)
    if tally.failed:
        reasons = "; ".join(tally.reasons or ())
        raise CommandError(f"{tally.failed} of {tally.sent} records were not stored: {reasons}")


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
) -> "AsyncIterator[Outgoing]":
    from appliance.kafka.produce import Outgoing

    fixed = None if key is None else key.encode()
    async for line in _lines(files):
        own, value = fixed, line
        if delimiter is not None:
            head, found, tail = line.partition(delimiter.encode())
            if not found:
                shown = line[:80].decode(errors="replace")
                raise CommandError(f"found no {delimiter!r} in {shown!r}, which -K expects")
            own, value = head, tail
        yield Outgoing(own, value, headers, partition)


async def _lines(files: list[Path]) -> AsyncIterator[bytes]:
    from appliance.kafka.produce import lines_of

    if not files:
        async for line in lines_of(sys.stdin.fileno()):
            yield line
    for path in files:
        with path.open("rb", buffering=0) as file:
            async for line in lines_of(file.fileno()):
                yield line


class _Progress:
    """How many are sent and stored, and how fast: on a terminal in place, else as lines."""

    def __init__(self) -> None:
        self._began_s = self._told_s = time.monotonic()
        self._is_shown = False

    def show(self, tally: "Tally") -> None:
        """Tell it now and then."""
        now_s = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if now_s - self._told_s < (TELL_EVERY_S if is_terminal else LINE_EVERY_S):
            return
        self._told_s = now_s
        text = f"{tally.sent:,} sent, {tally.stored:,} stored, {self._rate(tally)}"
        if is_terminal:
            self._is_shown = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        else:
            say(text)

    def _rate(self, tally: "Tally") -> str:
        elapsed_s = max(0.001, time.monotonic() - self._began_s)
        return f"{tally.stored / elapsed_s:,.0f} a second"

    def end(self, tally: "Tally") -> None:
        """What came of it."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
        elapsed_s = time.monotonic() - self._began_s
        say(f"{tally.stored:,} of {tally.sent:,} records stored ({elapsed_s:.1f} s)")

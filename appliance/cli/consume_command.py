"""`consume`: print records of topics as text, as JSON, or in a format of your own."""

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import BootstrapOption, asked_cluster, complete_topics, connected
from appliance.output import CommandError, Exit, counted, out, say, utc_text

if TYPE_CHECKING:
    from appliance.kafka.consume import Beginning, ReadRecord

OFFSET_HELP = "start, end, N, -N (N offsets before the end), or @time."
COMMITTED_HELP = "Leave out records of open and aborted transactions."
SKIP_HELP = "Skip batches that cannot be read, with a message for each."
DEFAULT_FORM = r"%s\n"
FORM_HELP = r"%t topic, %p partition, %o offset, %k key, %s value, %T time, %h headers, \t \n"


def consume(
    topics: Annotated[list[str], typer.Argument(autocompletion=complete_topics)],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as this group, and commit offsets.")
    ] = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help=OFFSET_HELP)] = "end",
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after this many records.", min=0)
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End at the records that are there now.")
    ] = False,
    partitions: Annotated[
        str | None, typer.Option("--partitions", "-p", help="Only these partitions, such as 0,1.")
    ] = None,
    form: Annotated[str, typer.Option("--format", "-f", help=FORM_HELP)] = DEFAULT_FORM,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line (ndjson).")
    ] = False,
    read_committed: Annotated[
        bool,
        typer.Option("--read-committed", help=COMMITTED_HELP),
    ] = False,
    no_commit: Annotated[
        bool, typer.Option("--no-commit", help="With -g: do not commit offsets.")
    ] = False,
    skip_errors: Annotated[bool, typer.Option("--skip-message-on-error", help=SKIP_HELP)] = False,
    idle: Annotated[
        float | None, typer.Option("--idle", help="End when no record came for this many seconds.")
    ] = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Print the records of topics; without -g no group is created."""
    from appliance.kafka.consume import ReadRequest, read
    from appliance.kafka.session import run

    wanted = ReadRequest(
        topics=tuple(topics),
        partitions=_numbers(partitions),
        beginning=beginning_of(offset),
        group_id=group,
        auto_commit=not no_commit,
        isolation_level=1 if read_committed else 0,
        count_max=count,
        idle_ms=None if idle is None else round(idle * 1000),
        ends=at_end,
        skipped=(lambda error: say(f"{error}; skipped")) if skip_errors else None,
    )
    if group is not None and wanted.partitions is not None:
        raise CommandError(
            "-p and -g exclude each other: a group assigns its partitions itself", Exit.USAGE
        )
    printer = _Printer(form, as_json=as_json)

    async def work() -> None:
        async with connected(asked_cluster(bootstrap)) as cluster:
            await read(cluster, wanted, printer.print)

    try:
        run(work())
    finally:
        say(counted(printer.count, "record"))


class _Printer:
    """Prints each record at once on standard output. Raises CommandError for a bad format."""

    def __init__(self, form: str, *, as_json: bool) -> None:
        self.count = 0
        self._pieces = pieces_of(form)
        self._as_json = as_json

    def print(self, one: "ReadRecord") -> None:
        """Print one record."""
        self.count += 1
        if self._as_json:
            out(json.dumps(json_of(one), ensure_ascii=False))
        else:
            sys.stdout.buffer.write(b"".join(_piece(piece, one) for piece in self._pieces))
        sys.stdout.flush()
        sys.stdout.buffer.flush()


def beginning_of(text: str) -> "Beginning":
    """Return the beginning that the text of the option describes. Raises CommandError."""
    from appliance.kafka.consume import BeginAt, Beginning
    from appliance.kafka.moments import moment_ms

    if text in ("start", "end"):
        return Beginning(BeginAt(text))
    if text.startswith("@"):
        return Beginning(BeginAt.TIME, moment_ms(text[1:]))
    if text.isdecimal():
        return Beginning(BeginAt.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Beginning(BeginAt.LAST, int(text[1:]))
    raise CommandError(f"-o {text}: expected start, end, N, -N or @time", Exit.USAGE)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise CommandError(f"-p {text}: expected numbers such as 0,1", Exit.USAGE) from error


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def pieces_of(form: str) -> list[bytes | str]:
    """Split a format into literal text and field letters. Raises CommandError."""
    pieces: list[bytes | str] = []
    characters = iter(form)
    for character in characters:
        if character == "\\":
            following = next(characters, "\\")
            pieces.append(_ESCAPES.get(following, b"\\" + following.encode()))
        elif character == "%":
            letter = next(characters, "")
            if letter == "%":
                pieces.append(b"%")
            elif letter and letter in "tpoksvThKS":
                pieces.append(letter)
            else:
                raise CommandError(f"-f: found %{letter}, expected {FORM_HELP}", Exit.USAGE)
        else:
            pieces.append(character.encode())
    return pieces


def _piece(piece: bytes | str, one: "ReadRecord") -> bytes:
    if isinstance(piece, bytes):
        return piece
    record = one.record
    match piece:
        case "t":
            return str(record.topic).encode()
        case "p" | "o" | "T":
            number = {"p": record.partition, "o": record.offset, "T": record.timestamp_ms}[piece]
            return b"%d" % number
        case "k":
            return record.key or b""
        case "K" | "S":
            part = record.key if piece == "K" else record.value
            return b"%d" % (-1 if part is None else len(part))
        case "h":
            pairs = (name.encode() + b"=" + (value or b"") for name, value in record.headers)
            return b",".join(pairs)
    return record.value or b""


def json_of(one: "ReadRecord") -> dict[str, Any]:
    """Return a record as an object. Bytes that are not UTF-8 are written as base64, and an
    additional field marks them."""
    record = one.record
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": utc_text(record.timestamp_ms) if record.timestamp_ms >= 0 else None,
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "leader_epoch": one.leader_epoch if one.leader_epoch >= 0 else None,
    }
    for name, part in (("key", record.key), ("value", record.value)):
        text, is_base64 = text_of(part)
        found[name] = text
        if is_base64:
            found[f"{name}_base64"] = True
    found["headers"] = [
        {
            "name": name,
            "value": text_of(value)[0],
            **({"base64": True} if text_of(value)[1] else {}),
        }
        for name, value in record.headers
    ]
    return found


def text_of(part: bytes | None) -> tuple[str | None, bool]:
    """Return bytes as text, and whether the text is base64."""
    if part is None:
        return None, False
    try:
        return part.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(part).decode(), True

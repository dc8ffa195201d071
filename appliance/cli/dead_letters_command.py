"""`millrace collector dead-letters`: shows lines that could not be sent or counted, with their
files and the reasons."""

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import BootstrapOption, asked_cluster, connected
from appliance.cli.options import EnvelopeOption
from appliance.cli.rooms import cell_or_dash
from appliance.output import CommandError, Exit, counted, print_json, print_table, say, utc_text
from collector.send.replaying import Letter, first_bytes

if TYPE_CHECKING:
    from appliance.kafka.consume import Beginning
    from appliance.kafka.replay import DeadLetters

REASONS = ("overlong", "invalid_bytes", "damaged_archive")


def dead_letters(
    file: Annotated[
        str | None,
        typer.Option("--file", help="Only of this file: its path, the path's end, or a glob."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only from this time on: 1h (ago), or 2026-08-01T10:00Z."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help=f"Only with this reason: {', '.join(REASONS)}.")
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Send them as lines; without --execute they are only shown."),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="With --replay: send them instead of showing them.")
    ] = False,
    decode: Annotated[
        str | None,
        typer.Option("--decode", help="With --replay: their encoding, such as latin-1."),
    ] = None,
    cut: Annotated[
        bool,
        typer.Option("--cut", help="With --replay: also lines whose start alone was kept."),
    ] = False,
    stdin: Annotated[
        bool,
        typer.Option(
            "--stdin",
            help="With --replay: only the dead letters in standard input, in the form of --json."
            " The text in the key `line` of one of them is sent in place of its bytes.",
        ),
    ] = False,
    as_json: EnvelopeOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Show lines that could not be sent: the reason, the file, the position, the first bytes.

    With --replay the lines are sent to the topics for which they were meant, each once.
    """
    from appliance.kafka.replay import look
    from appliance.kafka.session import run
    from collector.naming import is_meant

    _refuse(reason, not replay and (execute or decode is not None or cut or stdin))
    beginning = _beginning(since)
    asked = asked_cluster(bootstrap)

    def chooses(letter: Letter) -> bool:
        return (file is None or is_meant(letter.file, file)) and reason in (None, letter.reason)

    if replay:
        from appliance.cli.replay_command import put_back, repair_of

        put_back(asked, beginning, chooses, repair_of(decode, cut, stdin), execute, as_json)
        return

    async def work() -> "DeadLetters":
        async with connected(asked) as cluster:
            return await look(cluster, beginning, chooses)

    _show(run(work()), as_json)


def _refuse(reason: str | None, lacks_replay: bool) -> None:
    if reason is not None and reason not in REASONS:
        raise CommandError(f"found {reason!r}, expected one of {', '.join(REASONS)}", Exit.USAGE)
    if lacks_replay:
        raise CommandError(
            "--execute, --decode, --cut and --stdin have an effect only with --replay: add it",
            Exit.USAGE,
        )


def _beginning(since: str | None) -> "Beginning":
    """Return the beginning of the reading: the first dead letter, or the first one after a time."""
    from appliance.kafka.consume import BeginAt, Beginning
    from appliance.kafka.moments import moment_ms

    if since is None:
        return Beginning(BeginAt.START)
    return Beginning(BeginAt.TIME, moment_ms(since))


def _show(shelf: "DeadLetters", as_json: bool) -> None:
    letters = sorted(shelf.letters.values(), key=lambda one: (one.timestamp_ms, one.place))
    found = [row_of(letter, shelf.replayed_ms.get(letter.place)) for letter in letters]
    if as_json:
        print_json("collector-dead-letters/1", found)
        return
    heads = ["timestamp", "reason", "file", "offset", "length", "topic", "replayed", "first_bytes"]
    if found:
        print_table(
            [head.upper() for head in heads],
            [[cell_or_dash(row[head]) for head in heads] for row in found],
            right=frozenset({3, 4}),
        )
    say(counted(len(found), "dead letter"))


def row_of(letter: Letter, replayed_ms: int | None) -> dict[str, Any]:
    """Return a dead letter as a row; its value is base64, because it can be binary."""
    return {
        "timestamp": utc_text(letter.timestamp_ms),
        "timestamp_ms": letter.timestamp_ms,
        "reason": letter.reason,
        "topic": letter.topic,
        "file": letter.file,
        "offset": letter.offset,
        "length": letter.length,
        "partition": letter.place.partition,
        "record_offset": letter.place.offset,
        "replayed": None if replayed_ms is None else utc_text(replayed_ms),
        "first_bytes": first_bytes(letter.value),
        "value_base64": base64.b64encode(letter.value).decode(),
    }

"""`millrace collector dead-letters --replay`: show what would be sent as lines, or send it."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from appliance.cli.cluster import connected
from appliance.cli.rooms import cell_or_dash
from appliance.kafka.consume import Beginning
from appliance.kafka.replay import (
    Chooses,
    DeadLetterReplay,
    DeadLetters,
    Line,
    look,
    missing_topics,
)
from appliance.kafka.session import run
from appliance.output import CommandError, Exit, counted, print_json, print_table, say
from collector.send.replaying import LetterPlace, Repair, Unrepairable, first_bytes, repaired

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster
    from protocol.security.cluster_security import ClusterEntry

EDITS_BYTES_MAX = 512 << 20
WOULD_BE = "put back"
DONE = "replayed"
BEFORE = "replayed before"


def repair_of(decode: str | None, cut: bool, stdin: bool) -> Repair:
    """Return the repair that the options describe. Raises CommandError."""
    if decode is not None:
        try:
            "x".encode(decode)
        except LookupError as error:
            raise CommandError(
                f"found --decode {decode!r}, expected the name of a text encoding, such as latin-1",
                Exit.USAGE,
            ) from error
    return Repair(decode, cut, edits_of(sys.stdin.read(EDITS_BYTES_MAX)) if stdin else None)


def edits_of(text: str) -> dict[LetterPlace, bytes | None]:
    """Return the letters on standard input, each with its new line or None.

    The input is the envelope of `--json`, or its rows. Raises CommandError for other input.
    """
    try:
        rows = _rows(text)
        return {
            LetterPlace(_number(row, "partition"), _number(row, "record_offset")): (
                None if row.get("line") is None else str(row["line"]).encode()
            )
            for row in rows
        }
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            "standard input: expected what `collector dead-letters --json` prints, or a row of it"
            f" a line, each with partition and record_offset: {error!r}",
            Exit.USAGE,
        ) from error


def _rows(text: str) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(text)
    except ValueError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, dict):
        found = found.get("data", [found])
    rows: list[Mapping[str, Any]] = list(found)
    return rows


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def put_back(
    asked: "ClusterEntry",
    beginning: Beginning,
    chooses: Chooses,
    repair: Repair,
    execute: bool,
    as_json: bool,
) -> None:
    """Show, or do, the replay of the chosen letters."""

    async def work() -> tuple[DeadLetters, dict[LetterPlace, str], list[Line]]:
        async with connected(asked) as cluster:
            if not execute:
                shelf = await look(cluster, beginning, chooses)
                return shelf, *await judge(cluster, shelf, repair)
            async with DeadLetterReplay(cluster) as replay:
                shelf = await look(cluster, beginning, chooses, past_open=True)
                fates, lines = await judge(cluster, shelf, repair)
                return shelf, fates | await replay.put_back(lines), lines

    shelf, fates, lines = run(work())
    _show(shelf, fates, lines, execute, as_json)


async def judge(
    cluster: "Cluster", shelf: DeadLetters, repair: Repair
) -> tuple[dict[LetterPlace, str], list[Line]]:
    """Return the dead letters that cannot be sent, each with the reason, and the lines to send for
    all others."""
    fates: dict[LetterPlace, str] = {}
    lines: list[Line] = []
    for place, letter in sorted(shelf.letters.items()):
        if repair.edits is not None and place not in repair.edits:
            continue
        if place in shelf.replayed_ms:
            fates[place] = BEFORE
            continue
        try:
            value = repaired(letter, repair)
        except Unrepairable as error:
            fates[place] = str(error)
            continue
        assert letter.topic is not None
        lines.append(Line(letter, letter.topic, value))
    for unknown in sorted((repair.edits or {}).keys() - shelf.letters.keys()):
        fates[unknown] = "no such dead letter, or the options exclude it"
    missing = await missing_topics(cluster, sorted({line.topic for line in lines}))
    for line in lines:
        if line.topic in missing:
            fates[line.letter.place] = f"topic {line.topic!r} does not exist"
    return fates, [line for line in lines if line.topic not in missing]


def _show(
    shelf: DeadLetters,
    fates: Mapping[LetterPlace, str],
    lines: list[Line],
    execute: bool,
    as_json: bool,
) -> None:
    made = {line.letter.place: line for line in lines if line.letter.place not in fates}
    rows = []
    for place in sorted(fates.keys() | made.keys()):
        letter, line = shelf.letters.get(place), made.get(place)
        rows.append(
            {
                "partition": place.partition,
                "record_offset": place.offset,
                "file": None if letter is None else letter.file,
                "offset": None if letter is None else letter.offset,
                "topic": None if letter is None else letter.topic,
                "fate": fates.get(place, DONE if execute else WOULD_BE),
                "line": None if line is None else first_bytes(line.value),
            }
        )
    if as_json:
        print_json("collector-replay/1", {"executed": execute, "letters": rows})
    elif rows:
        heads = ["partition", "record_offset", "file", "offset", "topic", "fate", "line"]
        print_table(
            [head.upper() for head in heads],
            [[cell_or_dash(row[head]) for head in heads] for row in rows],
            right=frozenset({0, 1, 3}),
        )
    before = sum(fate == BEFORE for fate in fates.values())
    left_out = len(fates) - before
    done = "put back" if execute else "would be put back"
    say(
        f"{counted(len(made), 'dead letter')} {done} into the topic, {before} were put back"
        f" before, {left_out} cannot be put back"
    )
    if made and not execute:
        say("nothing was changed; add --execute to do it")
    if execute and left_out:
        raise CommandError(f"{left_out} dead letters were not sent", Exit.CONDITION)

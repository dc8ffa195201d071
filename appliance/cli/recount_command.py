"""`millrace stream recount`: ask the running stream for a recount, and follow its progress."""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.cluster import refuse_without_mill
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import progress_line, waiting
from appliance.cli.stream_database import in_mysql
from appliance.mill.entry import cluster_entry
from appliance.mill.settings import Mill
from appliance.output import CommandError, Exit, duration_text, say, tell
from protocol.client.errors import ClientError
from protocol.errors import ApiError
from protocol.units import parse_duration_ms

FOLLOW_EVERY_S = 0.5
TAKEN_OVER_S = 60.0
"""The time in seconds within which the stream starts to count a metric that was added to the
file."""

RATE_OVER_S = 60.0
RATE_AFTER_S = 10.0
"""The shortest time in seconds over which a rate is computed, because the stream counts in steps of
seconds."""


def recount(
    metric: Annotated[str, typer.Argument(help="A metric that the stream counts.")],
    since: Annotated[
        str | None,
        typer.Option("--from", help="Only lines that arrived since: 7d, or 2026-08-01T10:00Z."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Count lines that a metric has missed, from the topics or the archive.

    Files of the archive are read whole, so with --from some older lines can be counted too. The
    stream recounts beside its normal work, newest lines first. Ctrl-C only stops the display.
    """
    mill, _ = context.load_mill()
    known = {one.name: one for one in mill.config.stream.metrics}
    if metric not in known:
        names = ", ".join(known) or "none"
        raise CommandError(
            f"the configuration file has no metric {metric!r}; its metrics are {names}",
            Exit.NOT_FOUND,
        )
    inputs = mill.config.stream.from_
    topics = sorted({inputs[name].topic for name in known[metric].from_})
    asked = _ask(mill, metric, topics, _moment_ms(since))
    if asked is None:
        what = "" if since is None else f" that arrived since {since}"
        words = f"{metric} has counted every line of its topics{what}: there is nothing to recount"
        tell(words, "recount/1", {"metric": metric, "offsets": 0}, as_json)
        return
    say(
        f"the stream recounts {metric} over {asked:,} offsets (lines, and the ends of their"
        " transactions); Ctrl-C does not stop it"
    )
    try:
        _follow(mill, metric, asked)
    except KeyboardInterrupt:
        say("\nthe stream continues to recount; run the same command again to follow it")
        raise
    words = f"{metric} has counted every line that was asked for"
    tell(words, "recount/1", {"metric": metric, "offsets": asked}, as_json)


def _moment_ms(since: str | None) -> int | None:
    """Return the arrival time from which lines are counted, in Unix milliseconds; None for all
    lines."""
    if since is None:
        return None
    now_ms = round(time.time() * 1000)
    expected = "expected a duration such as 7d, or a time such as 2026-08-01T10:00Z"
    try:
        moment_ms = now_ms - parse_duration_ms(since)
    except ValueError:
        try:
            moment = datetime.fromisoformat(since)
        except ValueError as error:
            raise CommandError(f"--from {since}: {expected}", Exit.USAGE) from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        moment_ms = round(moment.timestamp() * 1000)
    if moment_ms >= now_ms:
        text = f"--from {since}: no line has arrived since then; {expected} that is past"
        raise CommandError(text, Exit.USAGE)
    return moment_ms


def _ask(mill: Mill, metric: str, topics: list[str], moment_ms: int | None) -> int | None:
    """Ask for the recount. Return how many offsets must be read; None if no line is missing."""
    from sinks.mysql import archive_rows
    from sinks.mysql.metric_changes import read_ranges
    from sinks.mysql.recounts import ask_for
    from sinks.ranges import is_away
    from stream.source.kafka import offsets_since

    refuse_without_mill(mill)
    try:
        asked = cluster_entry(mill)
        held = offsets_since(asked, "millrace-recount", topics, None)
        by_time = held
        if moment_ms is not None:
            by_time = offsets_since(asked, "millrace-recount", topics, moment_ms)
    except (ApiError, ClientError, OSError) as error:
        raise CommandError(
            f"no broker answers, so the recount was not requested: {error}", Exit.UNREACHABLE
        ) from error

    def ask(cursor: Any) -> bool:
        cursor.execute("SELECT name FROM metrics WHERE name = %s", (metric,))
        if cursor.fetchone() is None or is_away(metric, read_ranges(cursor)):
            return False
        archived: dict[tuple[str, int], int] = {}
        if mill.config.stream.archive is not None:
            archived = archive_rows.first_since(cursor, topics, moment_ms)
        ask_for(cursor, metric, archive_rows.floors(by_time, held, archived))
        return True

    # The stream applies a metric that was just saved within seconds.
    until_s = time.monotonic() + TAKEN_OVER_S
    with waiting(f"waiting until the stream counts {metric}"):
        while not in_mysql(mill, "a recount", ask):
            if time.monotonic() >= until_s:
                text = f"the stream does not count {metric} yet; `./millrace status` says why"
                raise CommandError(text, Exit.CONDITION)
            time.sleep(FOLLOW_EVERY_S)
    left = _left(mill, metric)
    return None if left is None else left[0]


def _left(mill: Mill, metric: str) -> tuple[int, str | None] | None:
    """Return how many offsets remain, and the reason why the stream stopped the recount; None when
    it is complete."""
    from sinks.mysql.recounts import wanted

    for one in in_mysql(mill, "a recount", wanted):
        if one.metric == metric:
            return one.left, one.problem
    return None


def _follow(mill: Mill, metric: str, asked: int) -> None:
    """Show the progress until the recount is complete. Raises CommandError if it cannot be
    completed."""
    seen = [(time.monotonic(), asked)]
    least = asked
    with progress_line() as line:
        while (found := _left(mill, metric)) is not None:
            left, problem = found
            if problem is not None:
                raise CommandError(
                    f"the recount of {metric} has stopped: {problem}; `./millrace logs stream` "
                    "shows more"
                )
            now_s, least = time.monotonic(), min(least, left)
            seen = [one for one in seen if now_s - one[0] <= RATE_OVER_S] + [(now_s, left)]
            line.show(progress_text(metric, asked, seen))
            time.sleep(FOLLOW_EVERY_S)
    if _has_left(mill, metric):
        raise CommandError(
            f"the metric {metric} was removed from the configuration, so its recount ended "
            f"after {asked - least:,} of {asked:,} offsets",
            Exit.CONDITION,
        )


def _has_left(mill: Mill, metric: str) -> bool:
    """Return whether the stream does not count the metric any more, so that its recount has
    ended."""
    from sinks.mysql.metric_changes import read_ranges
    from sinks.ranges import is_away

    def ask(cursor: Any) -> bool:
        cursor.execute("SELECT name FROM metrics WHERE name = %s", (metric,))
        return cursor.fetchone() is None or is_away(metric, read_ranges(cursor))

    return bool(in_mysql(mill, "a recount", ask))


def rate_of(seen: list[tuple[float, int]]) -> float:
    """Return the offsets per second between the first and the last measurement (monotonic seconds,
    offsets left)."""
    (begin_s, before), (end_s, after) = seen[0], seen[-1]
    return (before - after) / (end_s - begin_s) if end_s > begin_s else 0.0


def progress_text(metric: str, asked: int, seen: list[tuple[float, int]]) -> str:
    """Return the progress as text, with a rate and the time left once they are known."""
    (begin_s, _), (end_s, left) = seen[0], seen[-1]
    text = f"{metric}: {max(0, asked - left):,} of {asked:,} offsets"
    if end_s - begin_s < RATE_AFTER_S:
        return text
    rate = rate_of(seen)
    eta = duration_text(left / rate * 1000) if rate > 0 else "unknown"
    return f"{text}, {rate:,.0f} a second, {eta} left"

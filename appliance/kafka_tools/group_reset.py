"""`kafka-consumer-groups --reset-offsets`: move groups' committed offsets."""

import argparse
import csv
import io
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from appliance.kafka import groups, reset
from appliance.kafka.reset import split_scope
from appliance.kafka_tools.base import AlreadyTold, ToolParser, UsageFault
from appliance.output import CommandError, Exit, out, say
from protocol.client import group_offset_reset
from protocol.client.cluster import Cluster
from protocol.client.group_admin import list_groups
from protocol.client.group_offset_reset import ResetTarget, To
from protocol.client.topic_details import describe_topics
from protocol.types import TopicPartition

TARGETS = (
    *("to-earliest", "to-latest", "to-current", "to-offset", "shift-by"),
    *("to-datetime", "by-duration", "from-file"),
)
NO_ACTION = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this"
    " command will require either --dry-run or --execute to be specified. You should add the"
    " --dry-run option explicitly if you are scripting this command and want to keep the current"
    " default behavior without prompting."
)

_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?)?\Z"
)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})(Z|[+-]\d\d(?::?\d\d)?)?\Z")


def add_options(parser: ToolParser) -> None:
    """Add the options of a reset."""
    for flag in ("dry-run", "execute", "export", "to-earliest", "to-latest", "to-current"):
        parser.add_argument(f"--{flag}", action="store_true")
    for name in ("to-offset", "shift-by"):
        parser.add_argument(f"--{name}", type=int, metavar="N")
    for name in ("to-datetime", "by-duration", "from-file"):
        parser.add_argument(f"--{name}")


def check(options: argparse.Namespace) -> None:
    """Raise UsageFault for options that do not go together."""
    if options.dry_run and options.execute:
        raise UsageFault("Option [reset-offsets] only accepts one of --dry-run, --execute")
    if not options.dry_run and not options.execute:
        say(NO_ACTION)
    if len(_chosen(options)) != 1:
        raise UsageFault(f"Option [reset-offsets] takes exactly one of --{', --'.join(TARGETS)}")
    if options.from_file is None and not options.topic and not options.all_topics:
        raise UsageFault("Option [reset-offsets] takes one of --all-topics, --topic")


def _chosen(options: argparse.Namespace) -> list[str]:
    return [
        name for name in TARGETS if getattr(options, name.replace("-", "_")) not in (None, False)
    ]


async def work(cluster: Cluster, options: argparse.Namespace) -> None:
    """Print each group's new offsets and, with --execute, commit them.

    Only groups without members are changed.
    """
    group_ids = list(dict.fromkeys(options.group))
    if options.all_groups:
        group_ids = [one.group_id for one in (await list_groups(cluster)).groups]
    plans = _plan_of_file(options.from_file, group_ids)
    rows: list[tuple[str, TopicPartition, int]] = []
    has_stayed = False
    for group in await groups.describe(cluster, group_ids):
        if (why := group_offset_reset.why_it_stays(group.group_id, group.state)) is not None:
            out(f"\nError: {why}")
            has_stayed = True
            continue
        target = _target(options)
        if plans is not None:
            plan = plans.get(group.group_id, {})
            target, tps = ResetTarget(To.PLAN, plan=plan), sorted(plan)
        else:
            tps = await reset.partitions_of(
                cluster, group.group_id, options.topic, all_topics=options.all_topics
            )
        found = await group_offset_reset.plan(cluster, group.group_id, tps, target, _note)
        if options.execute:
            await group_offset_reset.execute(cluster, group.group_id, found)
        rows += [(group.group_id, tp, offset) for tp, offset in found.items()]
    if options.export:
        _export(rows, len(group_ids))
    else:
        _print(rows)
    if has_stayed:
        raise AlreadyTold(Exit.CONDITION)


def _note(text: str) -> None:
    """Report an adjusted offset: on standard output where Kafka prints a text, and in the log where
    Kafka logs a line."""
    (out if text.startswith("\nWarn") else say)(text)


def _target(options: argparse.Namespace) -> ResetTarget:
    (name,) = _chosen(options)
    match name:
        case "to-offset":
            return ResetTarget(To.OFFSET, options.to_offset)
        case "shift-by":
            return ResetTarget(To.SHIFT, options.shift_by)
        case "to-datetime":
            return ResetTarget(To.TIME, moment_ms(options.to_datetime))
        case "by-duration":
            return ResetTarget(
                To.TIME, round(time.time() * 1000) - duration_ms(options.by_duration)
            )
        case "from-file":
            return ResetTarget(To.PLAN)
    return ResetTarget(To(name.removeprefix("to-")))


def moment_ms(text: str) -> int:
    """Return the Unix milliseconds of `YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless a zone is given."""
    match = _MOMENT.match(text)
    if match is None:
        expected = "expected YYYY-MM-DDTHH:mm:SS.sss, with Z or +HH:MM after it for a zone"
        raise CommandError(f"found {text!r}, {expected}", Exit.USAGE)
    zone = match[2] or "Z"
    if re.fullmatch(r"[+-]\d\d", zone):
        zone += ":00"
    try:
        moment = datetime.fromisoformat(match[1] + zone)
    except ValueError as error:
        raise CommandError(f"found {text!r}: {error}", Exit.USAGE) from error
    return round(moment.astimezone(UTC).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration in days, hours, minutes and seconds,
    `PnDTnHnMnS`."""
    match = _DURATION.match(text)
    if match is None or text.endswith(("P", "T")):
        raise CommandError(f"found {text!r}, expected PnDTnHnMnS, such as PT1H30M", Exit.USAGE)
    parts = {name: float(match[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    seconds = ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60
    return round((seconds + parts["seconds"]) * 1000) * (-1 if match["sign"] else 1)


def _plan_of_file(
    path: str | None, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, int]] | None:
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
    return reset.read_plan(text.splitlines(), group_ids)


def _export(rows: list[tuple[str, TopicPartition, int]], groups_count: int) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group_id, tp, offset in rows:
        names = [group_id] if groups_count > 1 else []
        writer.writerow([*names, tp.topic, tp.partition, offset])
    out(text.getvalue())


def _print(rows: list[tuple[str, TopicPartition, int]]) -> None:
    group_width = max([15, *(len(group_id) for group_id, _, _ in rows)])
    topic_width = max([15, *(len(tp.topic) for _, tp, _ in rows)])
    heads = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    out()
    for group_id, topic, partition, offset in [
        heads,
        *((group_id, tp.topic, str(tp.partition), str(offset)) for group_id, tp, offset in rows),
    ]:
        out(f"{group_id:<{group_width}} {topic:<{topic_width}} {partition:<10} {offset}")


async def known_partitions(
    cluster: Cluster, texts: Sequence[str]
) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions of `t` or `t:0,1`, and the topics that do not exist."""
    wanted = [split_scope(text) for text in texts]
    details = await describe_topics(cluster, {name for name, _ in wanted})
    tps: list[TopicPartition] = []
    unknown: list[str] = []
    for name, partitions in wanted:
        if partitions is not None:
            tps += [TopicPartition(name, partition) for partition in partitions]
        elif details[name].error:
            unknown.append(name)
        else:
            tps += [TopicPartition(name, one.partition) for one in details[name].partitions]
    return tps, unknown

"""The JSON routes: one envelope, and the same rows that the pages and the command line show.

Every table is also available as CSV with the same rows.
"""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from monitor.alerts.view import alert_rows, rule_rows
from monitor.api import rows
from monitor.api.collectors import collector_rows
from monitor.asking.counts import SIZES, Counts, count_rows, described
from monitor.config.following import Configured
from monitor.config.settings import MonitorSettings
from monitor.sampling.sampler import Sampler
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.findings import findings_of
from monitor.views.links import NAME, named
from monitor.views.ranges import axis_of, slots_of, span_of

Row = dict[str, object]
Format = Literal["json", "csv"]
SERIES_ASKED_MAX = 12
EVENTS_MAX = 1_000
# A spreadsheet would run a value that begins with one of these characters as a formula. So such a
# value gets a quote at its start in CSV.
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


class Fault(BaseModel):
    """A source that could not be read in the last polling cycle, or a note about what is missing
    in the rows."""

    source: str
    text: str


class Envelope(BaseModel):
    """The form of every answer: rows in `data`, null where a value is not known."""

    schema_name: str = Field(serialization_alias="schema")
    ts: str = Field(description="RFC 3339, UTC")
    ts_ms: int
    seq: int
    kafka_at_ms: int | None = Field(description="when the brokers last answered")
    data: list[Row]
    errors: list[Fault]


def as_csv(data: Sequence[Row], name: str) -> Response:
    """Return rows as CSV. The header has each column that occurs in any row, in order of
    appearance.
    """
    table = [rows.flat(row) for row in data]
    heads = list(dict.fromkeys(key for row in table for key in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(heads)
    writer.writerows([_cell(row.get(head)) for head in heads] for row in table)
    return Response(
        text.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA_SIGNS):
        return f"'{value}"
    return value


class Answers:
    """Makes envelopes from the sampler's latest snapshot.

    Before the first snapshot it answers 503.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    @property
    def snapshot(self) -> Snapshot:
        """The latest snapshot; 503 before the first one."""
        if self._sampler.snapshot is None:
            raise HTTPException(
                503, "the monitor has not finished its first polling cycle yet; try again shortly"
            )
        return self._sampler.snapshot

    def give(
        self,
        schema: str,
        data: list[Row],
        form: Format = "json",
        table: list[Row] | None = None,
        faults: Sequence[Fault] = (),
    ) -> Response:
        """Return the rows as JSON or CSV. The CSV has the rows of `table`, if that is given.

        `faults` says what is missing in these rows. The envelope also names the sources that the
        last polling cycle could not read.
        """
        snapshot = self.snapshot
        if form == "csv":
            return as_csv(data if table is None else table, schema.partition("/")[0])
        envelope = Envelope(
            schema_name=schema,
            ts=datetime.fromtimestamp(snapshot.taken_at_ms / 1000, UTC).isoformat(),
            ts_ms=snapshot.taken_at_ms,
            seq=snapshot.seq,
            kafka_at_ms=snapshot.kafka_at_ms,
            data=data,
            errors=[*faults, *(Fault(source=e.source, text=e.text) for e in snapshot.errors)],
        )
        return JSONResponse(envelope.model_dump(mode="json", by_alias=True))


def api_router(
    settings: MonitorSettings,
    configured: Configured,
    sampler: Sampler,
    counts: Counts | None = None,
) -> APIRouter:
    """Return the routes under `/api/v1`; they answer 503 until the first polling cycle is done."""
    router = APIRouter(prefix="/api/v1", tags=["monitor"])
    answers = Answers(sampler)
    _add_readers(router, answers)
    _add_cluster(router, answers)
    _add_parts(router, answers, settings, configured)
    _add_alerts(router, answers)
    _add_history(router, answers, settings, sampler)
    _add_counts(router, answers, configured, counts)
    return router


def _add_readers(router: APIRouter, answers: Answers) -> None:
    @router.get("/lag", summary="Lag by partition, topic or group", response_model=Envelope)
    async def lag(
        per: Literal["partition", "topic", "group"] = "partition",
        group: str | None = Query(None, description="only this group"),
        topic: str | None = Query(
            None, description="only this topic; 422 with per=group, whose rows sum all topics"
        ),
        format: Format = "json",
    ) -> Response:
        if per == "group" and topic is not None:
            raise HTTPException(
                422,
                f"topic: found {topic!r} with per=group, expected per=topic or per=partition:"
                " a row of a group sums all of its topics",
            )
        found = rows.lag_rows(answers.snapshot, per)
        found = [row for row in found if group is None or row["group"] == group]
        found = [row for row in found if topic in (None, row.get("topic"))]
        return answers.give("lag/1", found, format)

    @router.get("/groups", summary="Groups with their total lag", response_model=Envelope)
    async def groups(format: Format = "json") -> Response:
        found = [rows.group_row(one) for one in answers.snapshot.groups]
        return answers.give("groups/1", found, format)

    @router.get(
        f"/groups/{{group_id:{NAME}}}", summary="One group, by partition", response_model=Envelope
    )
    async def group(
        group_id: str,
        id: str | None = Query(None, description="its name, if that is . or ..: /groups/?id=.."),
        format: Format = "json",
    ) -> Response:
        group_id = named(group_id, id)
        if answers.snapshot.group(group_id) is None:
            raise HTTPException(404, f"no group {group_id!r} is known")
        found = [row for row in rows.lag_rows(answers.snapshot) if row["group"] == group_id]
        return answers.give("lag/1", found, format)


def _add_cluster(router: APIRouter, answers: Answers) -> None:
    @router.get("/topics", summary="Topics with their partitions", response_model=Envelope)
    async def topics(format: Format = "json") -> Response:
        found = [rows.topic_row(topic) for topic in answers.snapshot.topics]
        return answers.give("topics/1", found, format)

    @router.get("/topics/{name}", summary="One topic", response_model=Envelope)
    async def topic_by_name(name: str, format: Format = "json") -> Response:
        topic = answers.snapshot.topic(name)
        if topic is None:
            raise HTTPException(404, f"no topic {name!r}")
        found = [rows.topic_row(topic)]
        return answers.give("topics/1", found, format, rows.partition_rows(found))

    @router.get("/brokers", summary="Brokers, and whether they answer", response_model=Envelope)
    async def brokers(format: Format = "json") -> Response:
        found = [rows.broker_row(broker) for broker in answers.snapshot.brokers]
        return answers.give("brokers/1", found, format)

    @router.get("/moves", summary="Reassignments under way: bytes, rate, time or why they stand",
                response_model=Envelope)  # fmt: skip
    async def moves(format: Format = "json") -> Response:
        found = [rows.move_row(one) for one in answers.snapshot.moves]
        return answers.give("moves/1", found, format)

    @router.get("/changes", summary="Changes of the cluster under way, and what to do",
                response_model=Envelope)  # fmt: skip
    async def changes(format: Format = "json") -> Response:
        return answers.give("changes/1", [rows.changes_row(answers.snapshot)], format)

    @router.get("/quorum", summary="How far each replica of the metadata log is",
                response_model=Envelope)  # fmt: skip
    async def quorum(format: Format = "json") -> Response:
        return answers.give("quorum/1", rows.quorum_rows(answers.snapshot), format)


def _add_parts(
    router: APIRouter, answers: Answers, settings: MonitorSettings, configured: Configured
) -> None:
    @router.get("/health", summary="What is wrong, worst first", response_model=Envelope)
    async def health(format: Format = "json") -> Response:
        inputs = [(one.paths, one.topic) for one in configured.now.inputs]
        found: list[Row] = [
            {
                "level": one.level,
                "what": one.badge,
                "text": one.lead + one.text,
                "detail": one.detail,
                "page": one.href,
            }
            for one in findings_of(answers.snapshot, settings.stream_group, inputs)
        ]
        return answers.give("health/1", found, format)

    @router.get("/parts", summary="Every part of the mill, with its own status",
                response_model=Envelope)  # fmt: skip
    async def parts(format: Format = "json") -> Response:
        found = [rows.part_row(part) for part in answers.snapshot.parts]
        return answers.give("parts/1", found, format)

    @router.get("/disks", summary="Disks: how full, and how fast they fill",
                response_model=Envelope)  # fmt: skip
    async def disks(format: Format = "json") -> Response:
        found = [rows.disk_row(disk) for disk in answers.snapshot.disks]
        return answers.give("disks/1", found, format)

    @router.get("/collector", summary="Watched files: size, position, lag", response_model=Envelope)
    async def collector(format: Format = "json") -> Response:
        part = answers.snapshot.part("collector")
        return answers.give("files/1", render.file_rows(part), format)

    @router.get("/collectors", summary="Collectors of other hosts, as their reports say",
                response_model=Envelope)  # fmt: skip
    async def collectors(format: Format = "json") -> Response:
        return answers.give("collectors/1", collector_rows(answers.snapshot), format)

    @router.get("/stream", summary="The stream: its batches, by stage, and unparsed lines",
                response_model=Envelope)  # fmt: skip
    async def stream(format: Format = "json") -> Response:
        part = answers.snapshot.part("stream")
        return answers.give("stream/1", [rows.part_row(part)] if part else [], format)


def _add_alerts(router: APIRouter, answers: Answers) -> None:
    @router.get("/alerts", summary="Open alerts, oldest first", response_model=Envelope)
    async def alerts(format: Format = "json") -> Response:
        return answers.give("alerts/1", alert_rows(answers.snapshot), format)

    @router.get("/rules", summary="Rules of alerts, and how they stand", response_model=Envelope)
    async def rules(format: Format = "json") -> Response:
        return answers.give("rules/1", rule_rows(answers.snapshot), format)


def _add_history(
    router: APIRouter, answers: Answers, settings: MonitorSettings, sampler: Sampler
) -> None:
    @router.get("/history", summary="Series over a range: a row per slot, null for unknown",
                response_model=Envelope)  # fmt: skip
    def history(
        series: Annotated[
            list[str] | None, Query(description="names; all names if left out")
        ] = None,
        range: Literal["10m", "3h", "1d", "1w", "all"] = "10m",
        format: Format = "json",
    ) -> Response:
        snapshot, recorder = answers.snapshot, sampler.recorder
        if recorder is None:
            return answers.give("history/1", [], format)
        if not series:
            names: list[Row] = [{"series": name} for name in recorder.store.names()]
            return answers.give("series/1", names, format)
        if len(series) > SERIES_ASKED_MAX:
            raise HTTPException(
                422, f"found {len(series)} series, expected at most {SERIES_ASKED_MAX}"
            )
        span = span_of(range, settings.section.retain_ms)
        axis = axis_of(
            span, snapshot.taken_at_ms, snapshot.refresh_ms, recorder.store.facts().oldest_ms
        )
        points = recorder.store.read(series, axis.begin_ms, axis.end_ms, span.level)
        slots = {name: slots_of(points[name], axis) for name in series}
        found: list[Row] = []
        for slot in builtin_range(axis.count):
            row: Row = {"at": render.clock(axis.at(slot)), "at_ms": axis.at(slot)}
            for name in series:
                value = slots[name][slot]
                row[name] = None if value is None else value[0]
            found.append(row)
        return answers.give("history/1", found, format)

    @router.get("/events", summary="What happened, newest first", response_model=Envelope)
    def events(
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX)] = 100, format: Format = "json"
    ) -> Response:
        recorder = sampler.recorder
        listed = recorder.store.events(0, 1 << 62, limit) if recorder is not None else []
        found: list[Row] = [
            {"at": render.clock(one.at_ms), "at_ms": one.at_ms, "kind": one.kind, "text": one.text}
            for one in listed
        ]
        return answers.give("events/1", found, format)


def _add_counts(
    router: APIRouter, answers: Answers, configured: Configured, counts: Counts | None
) -> None:
    def asked(name: str | None, size: str) -> list[Row]:
        if counts is None:
            return []
        known = {metric.name: metric for metric in configured.now.metrics}
        answer = counts.read(SIZES[size])
        if answer.error is not None:
            raise HTTPException(503, f"MySQL does not answer: {answer.error}")
        return [
            row
            for one in answer.metrics
            if name in (None, one.name)
            for row in count_rows(one, described(one.name, known, one))
        ]

    @router.get("/counts", summary="Totals and the last windows of every metric",
                response_model=Envelope)  # fmt: skip
    def all_counts(size: Literal["1m", "1h", "1d"] = "1m", format: Format = "json") -> Response:
        return answers.give("counts/1", asked(None, size), format)

    @router.get("/counts/{name}", summary="Totals and the last windows of one metric",
                response_model=Envelope)  # fmt: skip
    def counts_of(
        name: str, size: Literal["1m", "1h", "1d"] = "1m", format: Format = "json"
    ) -> Response:
        found = asked(name, size)
        if not found:
            raise HTTPException(404, f"no counts of a metric {name!r}")
        return answers.give("counts/1", found, format)


builtin_range = range
"""Python's own `range`, which a route's parameter hides."""

"""The JSON side: one envelope, rows exactly as the pages and the command line show them."""

from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field

from monitor import render
from monitor.sampler import Sampler
from monitor.snapshot import Snapshot

Row = dict[str, object]


class Fault(BaseModel):
    """A source that could not be read in this cycle."""

    source: str
    text: str


class Envelope(BaseModel):
    """What every answer looks like: rows in `data`, null where a value is not known."""

    schema_name: str = Field(serialization_alias="schema")
    ts: str = Field(description="RFC 3339, UTC")
    ts_ms: int
    seq: int
    kafka_at_ms: int | None = Field(description="when the brokers last answered")
    data: list[Row]
    errors: list[Fault]


def api_router(sampler: Sampler) -> APIRouter:
    """The routes under `/api/v1`; 503 until the first cycle is done."""
    router = APIRouter(prefix="/api/v1", tags=["monitor"])

    def current() -> Snapshot:
        if sampler.snapshot is None:
            raise HTTPException(503, "the monitor has not finished its first cycle yet")
        return sampler.snapshot

    def envelope(schema: str, snapshot: Snapshot, data: list[Row]) -> Envelope:
        return Envelope(
            schema_name=schema,
            ts=datetime.fromtimestamp(snapshot.taken_at_ms / 1000, UTC).isoformat(),
            ts_ms=snapshot.taken_at_ms,
            seq=snapshot.seq,
            kafka_at_ms=snapshot.kafka_at_ms,
            data=data,
            errors=[Fault(source=e.source, text=e.text) for e in snapshot.errors],
        )

    @router.get("/lag", summary="Lag by partition, topic or group")
    async def lag(
        per: Literal["partition", "topic", "group"] = "partition",
        group: str | None = Query(None, description="only this group"),
        topic: str | None = Query(None, description="only this topic; not with per=group"),
    ) -> Envelope:
        snapshot = current()
        rows = render.lag_rows(snapshot, per)
        rows = [row for row in rows if group is None or row["group"] == group]
        return envelope(
            "lag/1", snapshot, [row for row in rows if topic in (None, row.get("topic"))]
        )

    @router.get("/groups", summary="Groups with their total lag")
    async def groups() -> Envelope:
        snapshot = current()
        return envelope("groups/1", snapshot, [render.group_row(g) for g in snapshot.groups])

    @router.get("/groups/{group_id}", summary="One group, by partition")
    async def group(group_id: str) -> Envelope:
        snapshot = current()
        if snapshot.group(group_id) is None:
            raise HTTPException(404, f"no group {group_id!r} has committed anything")
        rows = [row for row in render.lag_rows(snapshot) if row["group"] == group_id]
        return envelope("lag/1", snapshot, rows)

    @router.get("/topics", summary="Topics with their partitions")
    async def topics() -> Envelope:
        snapshot = current()
        return envelope("topics/1", snapshot, [render.topic_row(t) for t in snapshot.topics])

    @router.get("/topics/{name}", summary="One topic")
    async def topic_by_name(name: str) -> Envelope:
        snapshot = current()
        found = snapshot.topic(name)
        if found is None:
            raise HTTPException(404, f"no topic {name!r}")
        return envelope("topics/1", snapshot, [render.topic_row(found)])

    @router.get("/brokers", summary="Brokers, and whether they answer")
    async def brokers() -> Envelope:
        snapshot = current()
        rows: list[Row] = [
            {
                "node_id": broker.node_id,
                "address": broker.address,
                "controller": broker.is_controller,
                "alive": broker.alive,
                "error": broker.error,
                "leads": broker.leads,
            }
            for broker in snapshot.brokers
        ]
        return envelope("brokers/1", snapshot, rows)

    @router.get("/parts", summary="Every part of the mill, with its own status")
    async def parts() -> Envelope:
        snapshot = current()
        return envelope("parts/1", snapshot, [render.part_row(p) for p in snapshot.parts])

    @router.get("/collector", summary="Watched files: size, position, lag")
    async def collector() -> Envelope:
        snapshot = current()
        part = snapshot.part("collector")
        return envelope("files/1", snapshot, render.file_rows(part))

    @router.get("/stream", summary="The stream: rows a second, batch time, unparsed lines")
    async def stream() -> Envelope:
        snapshot = current()
        part = snapshot.part("stream")
        return envelope("stream/1", snapshot, [render.part_row(part)] if part else [])

    return router

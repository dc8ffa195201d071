"""The routes for programs: health, the part's own status, Prometheus, and an event per snapshot."""

from collections.abc import AsyncIterator, Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from sse_starlette.sse import EventSourceResponse

from monitor.api.exposition import metric_pieces
from monitor.login.logins import is_stranger
from monitor.sampling.clusters import Clusters
from monitor.sampling.sampler import Sampler
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.collectors import counts
from protocol.status import PartState, PartStatus, Problem

STREAMS_MAX = 200
TROUBLED_MAX = 20  # the most collectors with trouble in the status
READS = ["GET", "HEAD"]

CertificateProblem = Callable[[int], str | None]
"""A function that gets the present time in Unix milliseconds, and returns what is wrong with the
page's certificate; None if all is well or the page has no certificate."""


def problems_of(
    sampler: Sampler, certificate_problem: CertificateProblem, now_ms: int
) -> tuple[Problem, ...]:
    """Return the problems for `/status`: silent sources, stuck parts, history, webhook, and the
    page's certificate."""
    snapshot, recorder, notifier = sampler.snapshot, sampler.recorder, sampler.notifier
    found = []
    if snapshot is not None:
        found += [Problem(f"{error.source}-away", error.text) for error in snapshot.errors]
        for part in snapshot.parts:
            if render.health(part) == "failed":
                text = f"{part.name} has given up: {part.words or part.error or 'no reason told'}"
                found.append(Problem("part-failed", text))
        found += [Problem("part-stuck", text) for text in stuck_parts(snapshot).values()]
    history = sampler.history_problem if recorder is None else recorder.problem
    if history is not None:
        found.append(Problem("history", history))
    if notifier is not None and notifier.problem is not None:
        found.append(Problem("alerts", notifier.problem))
    if (fault := certificate_problem(now_ms)) is not None:
        found.append(Problem("certificate", fault))
    return tuple(found)


def stuck_parts(snapshot: Snapshot | None) -> dict[str, str]:
    """Return a sentence on each stuck part, except those that the supervisor has given up."""
    if snapshot is None:
        return {}
    return {
        part.name: f"{part.name} {part.stuck.text(snapshot.taken_at_ms)}"
        for part in snapshot.parts
        if part.stuck is not None and render.health(part) != "failed"
    }


def waiting_turns(snapshot: Snapshot | None) -> dict[str, str]:
    """Return for each part that waits in a rolling restart what it waits for."""
    if snapshot is None:
        return {}
    return {part.name: part.turn for part in snapshot.parts if part.turn is not None}


def remote_collectors(snapshot: Snapshot | None) -> dict[str, object]:
    """Return how many collectors of other hosts are in each state, and the worst of those with
    trouble. Return an empty dictionary if no such collector has ever reported.
    """
    if snapshot is None or snapshot.collectors is None:
        return {}
    troubled = [one for one in snapshot.collectors if one.health.is_trouble]
    return {
        "collectors": {str(health): count for health, count in counts(snapshot.collectors).items()},
        "collectors_troubled": [
            {"collector": one.report.instance, "health": str(one.health), "text": one.text}
            for one in troubled[:TROUBLED_MAX]
        ],
    }


def machine_routes(
    sampler: Sampler,
    clusters: Clusters,
    part: str,
    started_at_ms: int,
    clock_ms: Callable[[], int],
    certificate_problem: CertificateProblem,
) -> APIRouter:
    """Return the routes `/healthz`, `/status`, `/metrics`, and `/events`, which sends one event for
    each snapshot.
    """
    router = APIRouter()
    streams = 0

    def status() -> PartStatus:
        snapshot = sampler.snapshot
        problems = problems_of(sampler, certificate_problem, clock_ms())
        state = PartState.STARTING
        if snapshot is not None:
            state = PartState.DEGRADED if problems else PartState.RUNNING
        return PartStatus(
            part=part,
            state=state,
            ready=snapshot is not None,
            started_at_ms=started_at_ms,
            now_ms=clock_ms(),
            problems=problems,
            details={
                "snapshot": snapshot.seq if snapshot else None,
                "taken_at_ms": snapshot.taken_at_ms if snapshot else None,
                "open_pages": streams,
                "stuck_parts": stuck_parts(snapshot),
                "restarts_in_turn": waiting_turns(snapshot),
                **remote_collectors(snapshot),
            },
        )

    @router.api_route("/healthz", methods=READS, include_in_schema=False)
    async def healthz(request: Request) -> PlainTextResponse:
        now = status()
        if is_stranger(request):
            # The reasons name parts and topics, so only people with a login get them.
            text = "ok\n" if now.ready else "not ready\n"
            return PlainTextResponse(text, status_code=200 if now.ready else 503)
        if not now.ready:
            return PlainTextResponse(now.reason_not_ready() + "\n", status_code=503)
        if now.state is PartState.DEGRADED:
            return PlainTextResponse(now.reason_degraded() + "\n")
        return PlainTextResponse("ok\n")

    @router.api_route("/status", methods=READS, include_in_schema=False)
    async def status_page() -> JSONResponse:
        return JSONResponse(status().to_json())

    @router.api_route("/metrics", methods=READS, include_in_schema=False)
    async def metrics() -> Response:
        if sampler.snapshot is None:
            return PlainTextResponse("no snapshot yet\n", status_code=503)
        pieces = metric_pieces(sampler.snapshot, clusters.views())
        return StreamingResponse(pieces, media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/events", include_in_schema=False, response_model=None)
    async def events() -> Response:
        if streams >= STREAMS_MAX:
            return PlainTextResponse(f"{STREAMS_MAX} pages are open already\n", status_code=503)

        async def ticks() -> AsyncIterator[dict[str, str]]:
            nonlocal streams
            streams += 1
            try:
                while True:
                    snapshot = await sampler.wait_next()
                    if snapshot is not None:
                        yield {"data": f'{{"seq":{snapshot.seq}}}'}
            finally:
                streams -= 1

        return EventSourceResponse(ticks())

    return router

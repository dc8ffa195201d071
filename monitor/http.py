"""Pages, JSON, Prometheus and ticks, all rendered from the sampler's latest snapshot.

The application is made by a function of its settings; there are no globals. Everything a page
needs is served from here: no foreign host, no inline script or style, nothing user-given as HTML.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sse_starlette.sse import EventSourceResponse

from monitor import render
from monitor.api import api_router
from monitor.config import LOOPBACK_NAMES, MonitorSettings, split_address
from monitor.exposition import render_metrics
from monitor.lag import CellState
from monitor.sampler import Sampler
from protocol.status import VERSION, PartState, PartStatus, Problem

HERE = Path(__file__).parent
STREAMS_MAX = 200
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGES = {
    "/": "overview.html",
    "/groups": "groups.html",
    "/topics": "topics.html",
    "/brokers": "brokers.html",
    "/collector": "collector.html",
    "/stream": "stream.html",
}


def create_app(
    settings: MonitorSettings,
    sampler: Sampler,
    *,
    started_at_ms: int,
    clock_ms: Callable[[], int],
    on_failure: Callable[[BaseException], None],
) -> FastAPI:
    """The whole site over one sampler, which is started and stopped with it.

    `on_failure` is told when the sampler dies: pages that quietly grow old would be a lie.
    """

    def ended(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_failure(error)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(sampler.run())
        task.add_done_callback(ended)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    app = FastAPI(
        title="Millrace monitor",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    templates = _templates(settings)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.include_router(api_router(sampler))
    _guard_requests(app, settings)
    _add_pages(app, templates, sampler)
    _add_machine_ends(app, sampler, settings.part, started_at_ms, clock_ms)
    return app


def _templates(settings: MonitorSettings) -> Environment:
    templates = Environment(
        loader=FileSystemLoader(HERE / "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["render"] = render
    templates.globals["states"] = CellState
    templates.globals["stream_group"] = settings.stream_group
    templates.globals["version"] = VERSION
    return templates


def _guard_requests(app: FastAPI, settings: MonitorSettings) -> None:
    """Refuse foreign Host headers (DNS rebinding), and add the security headers to every answer."""
    allowed = {*LOOPBACK_NAMES, split_address(settings.section.listen)[0], settings.part}

    @app.middleware("http")
    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        host = request.headers.get("host", "").rsplit(":", 1)[0].strip("[]")
        response: Response
        if host not in allowed:
            response = PlainTextResponse(
                f"this monitor answers to {', '.join(sorted(allowed))}\n", status_code=421
            )
        else:
            response = await call_next(request)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def _add_pages(app: FastAPI, templates: Environment, sampler: Sampler) -> None:
    def page(request: Request, template: str, code: int = 200, **values: object) -> Response:
        snapshot = sampler.snapshot
        if snapshot is None:
            text = templates.get_template("starting.html").render(path=request.url.path)
            return HTMLResponse(text, status_code=503, headers={"Retry-After": "1"})
        etag = f'"{snapshot.seq}-{snapshot.taken_at_ms}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        text = templates.get_template(template).render(
            s=snapshot, now_ms=snapshot.taken_at_ms, path=request.url.path, **values
        )
        return HTMLResponse(
            text, status_code=code, headers={"ETag": etag, "Cache-Control": "no-cache"}
        )

    for path, template in PAGES.items():
        app.add_api_route(
            path, _page_route(page, template), include_in_schema=False, response_model=None
        )

    @app.get("/groups/{group_id}", include_in_schema=False, response_model=None)
    async def group_page(request: Request, group_id: str) -> Response:
        group = sampler.snapshot.group(group_id) if sampler.snapshot else None
        if sampler.snapshot is not None and group is None:
            return page(request, "missing.html", 404, kind="group", name=group_id)
        return page(request, "group.html", group=group)

    @app.get("/topics/{name}", include_in_schema=False, response_model=None)
    async def topic_page(request: Request, name: str) -> Response:
        topic = sampler.snapshot.topic(name) if sampler.snapshot else None
        if sampler.snapshot is not None and topic is None:
            return page(request, "missing.html", 404, kind="topic", name=name)
        return page(request, "topic.html", topic=topic)

    @app.get("/api/docs", include_in_schema=False, response_model=None)
    async def api_docs(request: Request) -> Response:
        return page(request, "api.html", paths=app.openapi()["paths"])


def _page_route(
    page: Callable[[Request, str], Response], template: str
) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        return page(request, template)

    return route


def _add_machine_ends(
    app: FastAPI,
    sampler: Sampler,
    part: str,
    started_at_ms: int,
    clock_ms: Callable[[], int],
) -> None:
    streams = 0

    def status() -> PartStatus:
        snapshot = sampler.snapshot
        problems = tuple(
            Problem(f"{error.source}-away", error.text)
            for error in (snapshot.errors if snapshot else ())
        )
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
            },
        )

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> PlainTextResponse:
        now = status()
        if not now.ready:
            return PlainTextResponse(now.reason_not_ready() + "\n", status_code=503)
        if now.state is PartState.DEGRADED:
            return PlainTextResponse(now.reason_degraded() + "\n")
        return PlainTextResponse("ok\n")

    @app.get("/status", include_in_schema=False)
    async def status_page() -> JSONResponse:
        return JSONResponse(status().to_json())

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        if sampler.snapshot is None:
            return PlainTextResponse("no snapshot yet\n", status_code=503)
        body = render_metrics(sampler.snapshot)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/events", include_in_schema=False, response_model=None)
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

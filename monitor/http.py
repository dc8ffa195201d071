"""The web application: pages, JSON, Prometheus metrics and ticks, from the latest snapshot.

A function makes the application from the settings; there are no globals. The site serves all files
that a page needs: nothing from other hosts, no inline script or style, no HTML from users.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from monitor.admin.operating import Orders
from monitor.admin.pages import Admin, admin_routes
from monitor.admin.session import Door
from monitor.api.routes import api_router
from monitor.asking.browse import Reads
from monitor.asking.counts import Counts
from monitor.asking.preview import Previews
from monitor.config.following import Configured, UpdateWatch
from monitor.config.settings import LOOPBACK_NAMES, MonitorSettings, split_address
from monitor.lag.rules import CellState
from monitor.login.gate import ForwardedHeaders, Gate, mark_of
from monitor.login.logins import Logins, identity_of
from monitor.login.pages import login_routes
from monitor.login.people import PageRole
from monitor.sampling.clusters import Clusters
from monitor.sampling.sampler import Sampler
from monitor.site.clusters import cluster_routes
from monitor.site.collectors import collectors_page
from monitor.site.machines import READS, machine_routes
from monitor.site.messages import message_routes
from monitor.site.preview import preview_form, preview_routes
from monitor.site.root import BelowRoot
from monitor.site.site import Site, Values
from monitor.state.snapshot import Snapshot
from monitor.tls import PageCertificate
from monitor.views import render
from monitor.views.findings import GLYPHS
from monitor.views.links import NAME, group_href, named, with_query
from monitor.views.ranges import span_keys
from protocol.status import VERSION

HERE = Path(__file__).parent
SECRET_BYTES = 32
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Do not use "no-referrer". With it browsers send no origin with this site's forms, so `/admin`
    # would refuse the forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGES = {
    "/": "Overview",
    "/counts": "Counts",
    "/stream": "Stream",
    "/groups": "Groups",
    "/topics": "Topics",
    "/brokers": "Brokers",
    "/collector": "Collector",
    "/alerts": "Alerts",
}
"""The pages in the order of the navigation. The pages for other clusters and for changes follow, if
there are any.
"""


def create_app(
    settings: MonitorSettings,
    sampler: Sampler,
    *,
    started_at_ms: int,
    clock_ms: Callable[[], int],
    on_failure: Callable[[BaseException], None],
    counts: Counts | None = None,
    browser: Reads | None = None,
    previews: Previews | None = None,
    orders: Orders | None = None,
    clusters: Clusters | None = None,
    certificate: PageCertificate | None = None,
) -> FastAPI:
    """Make the web application with all pages, from the values of one sampler.

    The sampler starts and stops with the application. `on_failure` is called when the sampler
    fails, because pages with old values would mislead. `/admin` exists only if `orders` is given
    and the settings have the token or a login.
    """

    def ended(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_failure(error)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(sampler.run()), *others.start()]
        if settings.reload is not None:
            watch = UpdateWatch(configured, settings.reload)
            tasks.append(asyncio.create_task(watch.run()))
        for task in tasks:
            task.add_done_callback(ended)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    root = settings.section.root_path
    app = FastAPI(
        title="Millrace monitor",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        servers=[{"url": root}] if root else None,
    )
    configured = Configured(settings)
    others = clusters or Clusters()
    templates = _templates(settings)
    templates.globals["has_clusters"] = len(others) > 0
    site = Site(
        settings, configured, sampler.recorder, counts, started_at_ms, sampler.notifier,
        sampler.history_problem,
    )  # fmt: skip
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.include_router(api_router(settings, configured, sampler, counts))
    logins = None if settings.login is None else Logins(settings.login, clock_ms)
    _add_middleware(app, settings, templates, logins)
    _add_pages(app, templates, sampler, site, browser, previews, clock_ms, others)
    if orders is not None and (settings.token is not None or logins is not None):
        show = _fresh_pages(templates, sampler, site)
        # With logins, operators give orders, and the token opens nothing.
        token = settings.token if logins is None else None
        door = Door(token, lambda: secrets.token_urlsafe(SECRET_BYTES))
        admin = Admin(door, logins is not None, orders, sampler, clock_ms, show, root)
        app.include_router(admin_routes(admin))
        templates.globals["admin"] = True
    faults = certificate.problem if certificate is not None else lambda now_ms: None
    app.include_router(
        machine_routes(sampler, others, settings.part, started_at_ms, clock_ms, faults)
    )
    return app


def _add_middleware(
    app: FastAPI, settings: MonitorSettings, templates: Environment, logins: Logins | None
) -> None:
    """Add the middleware. A request passes the middleware that is added last here first."""
    root = settings.section.root_path
    if logins is not None:
        if logins.has_form:
            app.include_router(login_routes(logins, partial(_login_page, templates), root))
        app.add_middleware(Gate, logins=logins, root=root)
    _guard_requests(app, settings)
    app.add_middleware(BelowRoot, root=root)
    if logins is not None:
        app.add_middleware(ForwardedHeaders, proxies=logins.proxies)


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
    templates.globals["glyphs"] = GLYPHS
    templates.globals["group_href"] = group_href
    templates.filters["with_query"] = with_query
    templates.globals["pages"] = tuple(PAGES.items())
    templates.globals["spans"] = span_keys()
    templates.globals["version"] = VERSION
    templates.globals["root"] = settings.section.root_path
    templates.globals["admin"] = False
    return templates


def _guard_requests(app: FastAPI, settings: MonitorSettings) -> None:
    """Refuse foreign Host headers (DNS rebinding), and add the security headers to every answer. A
    proxy puts its client's Host into X-Forwarded-Host, so that header is checked too."""
    own = {*LOOPBACK_NAMES, split_address(settings.section.listen)[0], settings.part}
    own |= {name.lower() for name in settings.names}
    allowed = {*own, *settings.section.hosts}

    def is_allowed(address: str) -> bool:
        return re.sub(r":[0-9]*$", "", address).strip("[]").lower() in allowed

    @app.middleware("http")
    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        hosts = [request.headers.get("host", ""), *request.headers.getlist("x-forwarded-host")]
        response: Response
        if not all(map(is_allowed, hosts)):
            response = PlainTextResponse(
                f"this monitor answers to {', '.join(sorted(allowed))}\n", status_code=421
            )
        else:
            response = await call_next(request)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def _login_page(templates: Environment, request: Request, values: Values, code: int) -> Response:
    """Return the page on which people log in. It shows nothing of the mill."""
    text = templates.get_template("login.html").render(path=request.url.path, **values)
    return HTMLResponse(text, status_code=code)


def _reader(templates: Environment, request: Request) -> Values:
    """Return the values of a page that depend on the request: its path, the identity behind it, and
    whether the reader may give orders."""
    identity = identity_of(request)
    may_order = identity is None or identity.role is PageRole.OPERATOR
    return {
        "path": request.url.path,
        "identity": identity,
        "admin": templates.globals["admin"] and may_order,
    }


def _starting(templates: Environment, request: Request) -> Response:
    text = templates.get_template("starting.html").render(**_reader(templates, request))
    return HTMLResponse(text, status_code=503, headers={"Retry-After": "1"})


def _fresh_pages(
    templates: Environment, sampler: Sampler, site: Site
) -> Callable[[Request, str, Values, int], Response]:
    """Return a function that renders a page for one request and forbids caches to store it."""

    def show(request: Request, template: str, values: Values, code: int) -> Response:
        snapshot = sampler.snapshot
        if snapshot is None:
            return _starting(templates, request)
        text = templates.get_template(template).render(
            **_reader(templates, request), **site.common(snapshot), **values
        )
        return HTMLResponse(text, status_code=code, headers={"Cache-Control": "no-store"})

    return show


def _add_pages(
    app: FastAPI,
    templates: Environment,
    sampler: Sampler,
    site: Site,
    browser: Reads | None,
    previews: Previews | None,
    clock_ms: Callable[[], int],
    clusters: Clusters,
) -> None:
    """Add the pages. Worker threads render them, because the history is read from the disk."""

    def page(
        request: Request, template: str, fill: Callable[[Snapshot], Values], code: int = 200
    ) -> Response:
        snapshot = sampler.snapshot
        if snapshot is None:
            return _starting(templates, request)
        mark = mark_of(identity_of(request))
        etag = f'"{snapshot.seq}-{snapshot.taken_at_ms}{mark}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        text = templates.get_template(template).render(
            **_reader(templates, request), **site.common(snapshot), **fill(snapshot)
        )
        return HTMLResponse(
            text, status_code=code, headers={"ETag": etag, "Cache-Control": "no-cache"}
        )

    def route(path: str) -> Callable[[Callable[..., Response]], object]:
        return app.api_route(path, methods=READS, include_in_schema=False, response_model=None)

    def missing(request: Request, kind: str, name: str) -> Response:
        return page(request, "missing.html", lambda _: {"kind": kind, "name": name}, 404)

    @route("/")
    def overview(request: Request, range: str = "10m") -> Response:
        return page(request, "overview.html", lambda s: site.overview(s, range))

    @route("/counts")
    def counts_page(request: Request, size: str = "1m") -> Response:
        form = partial(preview_form, previews)
        return page(request, "counts.html", lambda s: {**site.counts_page(size, None), **form(s)})

    @route("/counts/{name}")
    def metric_page(request: Request, name: str, size: str = "1m") -> Response:
        values = site.counts_page(size, name)
        if not values["metrics"] and values["error"] is None:
            return missing(request, "metric", name)
        return page(request, "counts.html", lambda _: {**values, "files": None})

    @route("/stream")
    def stream_page(request: Request, range: str = "10m", stages: str = "now") -> Response:
        return page(request, "stream.html", lambda s: site.stream(s, range, stages))

    @route("/groups")
    def groups_page(request: Request, sort: str = "name", q: str = "") -> Response:
        return page(request, "groups.html", lambda s: site.groups(s, sort, q))

    @route(f"/groups/{{group_id:{NAME}}}")
    def group_page(
        request: Request, group_id: str, id: str | None = None, range: str = "10m",
        sort: str = "partition",
    ) -> Response:  # fmt: skip
        group_id = named(group_id, id)
        group = sampler.snapshot.group(group_id) if sampler.snapshot else None
        if sampler.snapshot is not None and group is None:
            return missing(request, "group", group_id)
        return page(request, "group.html", lambda s: site.group(s, group, range, sort))

    @route("/topics")
    def topics_page(request: Request, q: str = "") -> Response:
        return page(request, "topics.html", lambda s: site.topics(s, q))

    @route("/topics/{name}")
    def topic_page(request: Request, name: str, range: str = "10m") -> Response:
        if sampler.snapshot is not None and sampler.snapshot.topic(name) is None:
            return missing(request, "topic", name)
        return page(request, "topic.html", lambda s: site.topic(s, name, range))

    app.include_router(message_routes(sampler, browser, clock_ms, page, missing))
    app.include_router(preview_routes(sampler, previews, page))
    if clusters:
        app.include_router(cluster_routes(clusters, sampler, page, missing))

    @route("/brokers")
    def brokers_page(request: Request) -> Response:
        return page(request, "brokers.html", site.brokers)

    @route("/collector")
    def collector_page(request: Request, range: str = "10m") -> Response:
        return page(request, "collector.html", lambda s: site.collector(s, range))

    @route("/collectors")
    def collectors(request: Request, number: Annotated[int, Query(alias="page")] = 1) -> Response:
        return page(request, "collectors.html", lambda s: collectors_page(s, number))

    @route("/alerts")
    def alerts_page(request: Request) -> Response:
        return page(request, "alerts.html", site.alerts)

    @route("/api/docs")
    def api_docs(request: Request) -> Response:
        return page(request, "api.html", lambda _: {"paths": app.openapi()["paths"]})

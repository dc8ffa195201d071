"""The page `/clusters`, a page for each cluster, and their API rows; all rendered from memory."""

from collections.abc import Callable
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request, Response

from monitor.api import rows
from monitor.api.routes import Answers, Envelope
from monitor.sampling.clusters import Clusters
from monitor.sampling.sampler import Sampler
from monitor.state.snapshot import Snapshot
from monitor.views.clusters import (
    GROUPS_SHOWN_MAX,
    TOPICS_SHOWN_MAX,
    cluster_row,
    cluster_view,
)

Page = Callable[[Request, str, Callable[[Snapshot], dict[str, Any]], int], Response]
Missing = Callable[[Request, str, str], Response]
Format = Literal["json", "csv"]

OWN = "this mill"


def cluster_routes(clusters: Clusters, sampler: Sampler, page: Page, missing: Missing) -> APIRouter:
    """Return the routes of the pages and API rows of the other clusters."""
    router = APIRouter()
    _add_pages(router, clusters, page, missing)
    _add_rows(router, clusters, sampler)
    return router


def _add_pages(router: APIRouter, clusters: Clusters, page: Page, missing: Missing) -> None:
    def route(path: str) -> Callable[[Callable[..., Response]], object]:
        return router.api_route(
            path, methods=["GET", "HEAD"], include_in_schema=False, response_model=None
        )

    @route("/clusters")
    def overview(request: Request) -> Response:
        return page(
            request,
            "clusters.html",
            lambda own: {
                "own": cluster_view(OWN, own.bootstrap_servers, own),
                "clusters": clusters.views(),
            },
            200,
        )

    @route("/clusters/{name}")
    def one(request: Request, name: str) -> Response:
        view = clusters.view(name)
        if view is None:
            return missing(request, "cluster", name)
        values = {
            "c": view,
            "groups": view.groups[:GROUPS_SHOWN_MAX],
            "topics": view.topics[:TOPICS_SHOWN_MAX],
        }
        return page(request, "cluster.html", lambda _: values, 200)


def _add_rows(router: APIRouter, clusters: Clusters, sampler: Sampler) -> None:
    def of(name: str) -> Answers:
        found = clusters.sampler(name)
        if found is None:
            raise HTTPException(404, f"no cluster {name!r}")
        return Answers(found)

    @router.get("/api/v1/clusters", tags=["monitor"], response_model=Envelope,
                summary="Clusters beside the mill's own, and how each stands")  # fmt: skip
    async def all_clusters(format: Format = "json") -> Response:
        found = [cluster_row(view) for view in clusters.views()]
        return Answers(sampler).give("clusters/1", found, format)

    @router.get("/api/v1/clusters/{name}/{what}", tags=["monitor"], response_model=Envelope,
                summary="Brokers, topics, groups or lag of one cluster")  # fmt: skip
    async def of_cluster(
        name: str, what: Literal["brokers", "topics", "groups", "lag"], format: Format = "json"
    ) -> Response:
        answers = of(name)
        snapshot = answers.snapshot
        if what == "brokers":
            found = [rows.broker_row(one) for one in snapshot.brokers]
        elif what == "topics":
            found = [rows.topic_row(one) for one in snapshot.topics]
        elif what == "groups":
            found = [rows.group_row(one) for one in snapshot.groups]
        else:
            found = rows.lag_rows(snapshot)
        table = rows.partition_rows(found) if what == "topics" else None
        return answers.give(f"{what}/1", found, format, table)

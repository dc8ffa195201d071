"""The preview of a file on the Counts page: its format, some rows, and how to count it."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from monitor.asking.preview import PreviewFailed, Previews, files_to_preview, relative_name
from monitor.sampling.sampler import Sampler
from monitor.site.messages import Page, Values
from monitor.state.snapshot import Snapshot
from monitor.views.not_counted import not_counted
from sinks.number_text import exact_percent

SWITCHED_OFF = "files are not shown here: monitor.messages is false"


def preview_form(previews: Previews | None, snapshot: Snapshot) -> Values:
    """Return the values of the form: the files to offer, or None if previews are switched off."""
    if previews is None:
        return {"files": None}
    collector = snapshot.part("collector")
    details = collector.details if collector is not None else {}
    return {"files": files_to_preview(details, not_counted(snapshot)["rows"])}


def preview_routes(sampler: Sampler, previews: Previews | None, page: Page) -> APIRouter:
    """Return the route of `/preview?file=`. If `previews` is None, it answers that previews are
    switched off.
    """
    router = APIRouter()

    @router.api_route(
        "/preview", methods=["GET", "HEAD"], include_in_schema=False, response_model=None
    )
    async def preview_page(
        request: Request, file: Annotated[str, Query(max_length=5_000)] = ""
    ) -> Response:
        values, code = {"file": file, "fault": None, "found": None}, 200
        if previews is None:
            values["fault"], code = SWITCHED_OFF, 503
        elif file and sampler.snapshot is not None and request.method == "GET":
            try:
                values |= _shown(relative_name(file), await previews.preview(file))
            except ValueError as error:
                values["fault"], code = str(error), 400
            except PreviewFailed as error:
                values["fault"], code = str(error), 503
        return await asyncio.to_thread(
            page, request, "preview.html",
            lambda s: {**values, **preview_form(previews, s)}, code,
        )  # fmt: skip

    return router


def _shown(name: str, found: Any) -> Values:
    """Return the values of a detection; `name` is relative to `watched/`."""
    return {
        "file": f"watched/{name}",
        "found": found,
        "percent": exact_percent(found["share"]),
    }

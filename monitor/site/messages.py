"""The page and the API rows of a topic's records, which are read for each request."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from monitor.api.routes import Answers, Envelope, Fault
from monitor.asking.browse import BrowseFailed, Reads
from monitor.asking.messages import (
    CONTAINS_CHARACTERS_MAX,
    COUNTS,
    PARTITIONS_MAX,
    Asked,
    Begin,
    Found,
    Wanted,
    record_rows,
    record_views,
    wanted_of,
)
from monitor.sampling.sampler import Sampler
from monitor.state.snapshot import Snapshot, TopicView
from protocol.types import TopicPartition

Values = dict[str, Any]
Page = Callable[[Request, str, Callable[[Snapshot], Values], int], Response]
Missing = Callable[[Request, str, str], Response]

BEGINS = (
    (Begin.LATEST, "the end, newest first"),
    (Begin.EARLIEST, "the beginning"),
    (Begin.OFFSET, "an offset"),
    (Begin.TIME, "a time"),
)
SWITCHED_OFF = "messages are not shown here: monitor.messages is false"


def _asked(
    partition: Annotated[
        str, Query(max_length=1_000, description=f"one; all of at most {PARTITIONS_MAX} without it")
    ] = "",
    begin: Annotated[
        str, Query(alias="from", max_length=1_000, description=f"one of {', '.join(Begin)}")
    ] = Begin.LATEST,
    at: Annotated[
        str, Query(max_length=1_000, description="the offset, or the time, to begin from")
    ] = "",
    n: Annotated[
        str,
        Query(max_length=1_000, description=f"records at most: {', '.join(map(str, COUNTS))}"),
    ] = str(COUNTS[1]),
    q: Annotated[
        str,
        Query(
            max_length=1_000,
            description=f"only records with this text of at most {CONTAINS_CHARACTERS_MAX} letters",
        ),
    ] = "",
    uncommitted: Annotated[
        str, Query(max_length=1_000, description="1 shows records of open and aborted transactions")
    ] = "",
) -> Asked:
    return Asked(partition, begin, at, n, q, uncommitted)


AskedFor = Annotated[Asked, Depends(_asked)]
"""The query of a request, as the user typed it."""


def message_routes(
    sampler: Sampler,
    browser: Reads | None,
    clock_ms: Callable[[], int],
    page: Page,
    missing: Missing,
) -> APIRouter:
    """Return the routes of `/topics/<name>/messages` and of its API rows.

    If `browser` is None, both routes answer that they are switched off.
    """
    router = APIRouter()

    async def find(topic: TopicView, asked: Asked) -> tuple[Wanted, Found]:
        if browser is None:
            raise BrowseFailed(SWITCHED_OFF)
        wanted = wanted_of(topic.name, asked, len(topic.partitions), clock_ms())
        numbers = [part.partition for part in topic.partitions]
        if wanted.partition is not None:
            numbers = [wanted.partition]
        return wanted, await browser.read(wanted, numbers)

    @router.api_route(
        "/topics/{name}/messages", methods=["GET", "HEAD"], include_in_schema=False,
        response_model=None,
    )  # fmt: skip
    async def messages_page(
        request: Request,
        name: str,
        asked: AskedFor,
    ) -> Response:
        topic = sampler.snapshot.topic(name) if sampler.snapshot else None
        if sampler.snapshot is not None and topic is None:
            return await asyncio.to_thread(missing, request, "topic", name)
        values, code = _empty(asked), 200
        if topic is not None and request.method == "GET":
            try:
                wanted, found = await find(topic, asked)
                values |= _shown(asked, wanted, found)
            except ValueError as error:
                values["fault"], code = str(error), 400
            except BrowseFailed as error:
                values["fault"], code = str(error), 503
        values["topic"] = topic
        return await asyncio.to_thread(page, request, "messages.html", lambda _: values, code)

    @router.get(
        "/api/v1/topics/{name}/messages", tags=["monitor"], response_model=Envelope,
        summary="Records of a topic: of one partition or all, from an offset, a time or an end",
    )  # fmt: skip
    async def messages(
        name: str,
        asked: AskedFor,
        format: Literal["json", "csv"] = "json",
    ) -> Response:
        answers = Answers(sampler)
        topic = answers.snapshot.topic(name)
        if topic is None:
            raise HTTPException(404, f"no topic {name!r}")
        try:
            _, found = await find(topic, asked)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        except BrowseFailed as error:
            raise HTTPException(503, str(error)) from error
        found_rows = record_rows(found.records)
        faults = [Fault(source=f"topic {name}", text=text) for text in found.problems]
        # CSV has no place for errors outside the table, so each error becomes a separate row.
        table = [{**one, "errors": None} for one in found_rows]
        table += [{"errors": text} for text in found.problems]
        return answers.give("messages/1", found_rows, format, table, faults)

    return router


def _empty(asked: Asked) -> Values:
    return {
        "asked": asked,
        "begins": BEGINS,
        "sizes": COUNTS,
        "fault": None,
        "problems": (),
        "records": None,
        "looked_at": 0,
        "order": "",
        "steps": (),
        "query": "",
    }


def _shown(asked: Asked, wanted: Wanted, found: Found) -> Values:
    return {
        "problems": found.problems,
        "records": record_views(found.records),
        "looked_at": found.looked_at,
        "order": "newest first" if wanted.begin is Begin.LATEST else "oldest first",
        "steps": steps(wanted, found),
        "query": query(asked),
    }


def query(asked: Asked, **changes: str) -> str:
    """Return the form's fields as a query string, without empty fields."""
    words = {
        "partition": asked.partition,
        "from": asked.begin,
        "at": asked.at,
        "n": asked.count,
        "q": asked.contains,
        "uncommitted": asked.uncommitted,
    } | changes
    return urlencode({name: word for name, word in words.items() if word})


def steps(wanted: Wanted, found: Found) -> list[tuple[str, str]]:
    """Return links to older and newer records of one partition."""
    offsets = [record.offset for _, record in found.records]
    if wanted.partition is None or not offsets or wanted.contains:
        return []
    row = TopicPartition(wanted.topic, wanted.partition)
    start, end = (found.starts or {}).get(row, 0), (found.ends or {}).get(row, 0)
    links = []
    path = f"/topics/{quote(wanted.topic, safe='')}/messages"
    asked = Asked(
        str(wanted.partition), Begin.OFFSET, "", str(wanted.count),
        uncommitted="" if wanted.is_committed_only else "1",
    )  # fmt: skip
    if min(offsets) > start:
        older = max(start, min(offsets) - wanted.count)
        links.append(("Older", f"{path}?{query(asked, at=str(older))}"))
    if max(offsets) + 1 < end:
        links.append(("Newer", f"{path}?{query(asked, at=str(max(offsets) + 1))}"))
    return links

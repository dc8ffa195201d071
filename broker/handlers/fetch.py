"""Fetch and ListOffsets."""

from __future__ import annotations

from broker.node.services import Services
from broker.sessions.call import Call
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse


def fetch(services: Services, call: Call, request: FetchRequest) -> FetchResponse | None:
    """Answer with what there is, or park."""
    return services.fetches.start(call, request)


def list_offsets(
    services: Services, call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | None:
    """The offset at a time, or at one of the special ones."""
    return services.listings.start(call, request)

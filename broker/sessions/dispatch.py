"""Passes each request to its handler, and turns each error into an answer.

The table of handlers defines the requests that are served on a listener. ApiVersions lists them,
and no other request is answered. Any other API key or version closes the connection, as in Kafka.
The only exception is ApiVersions itself: an unknown version gets an answer in version 0, so that a
newer client can use a lower version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.metrics.metrics import Metrics
from broker.metrics.times import ApiTimes, RequestTiming
from broker.sessions.call import Call, RequestingSession
from broker.sessions.pipeline import Slot
from broker.sessions.versions import shown
from protocol.errors import ApiError, ErrorCode, UnknownVersion
from protocol.log import escape
from protocol.messages.api import ApiKey, request_class, response_class
from protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from protocol.messages.headers import decode_request_header
from protocol.messages.produce import ProduceRequest
from protocol.wire.schema import Message

Handler = Callable[[Call, Any], Message | None]
"""A function that serves a request. It returns the answer, or None if it has parked or answered the
call."""

_API_VERSIONS = int(ApiKey.API_VERSIONS)


class Dispatcher:
    """Starts requests. One dispatcher serves all clients, another one all other brokers."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        offered: Mapping[ApiKey, range],
        metrics: Metrics,
        template_of: Callable[[memoryview, ProduceRequest, bool], object],
    ) -> None:
        """`offered` has the versions of each API. `template_of` makes the template of a Produce,
        with which the next Produce is compared. Its last argument is True if the client's listener
        needs no login."""
        self._template_of = template_of
        self._metrics = metrics
        self._table: dict[int, tuple[range, type[Message], Handler, ApiTimes]] = {}
        self.serve(handlers, offered)

    def serve(self, handlers: Mapping[ApiKey, Handler], offered: Mapping[ApiKey, range]) -> None:
        """Add handlers and the versions that they serve."""
        assert handlers.keys() == offered.keys(), "the offered APIs and the handlers differ"
        for key, handler in handlers.items():
            self._table[int(key)] = (
                offered[key],
                request_class(key),
                handler,
                self._metrics.times_of(key),
            )

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        """Serve one request. Raises WireError if the connection must be closed."""
        header, position = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        call = Call(session, slot, key, version, header.correlation_id, header.client_id)
        entry = self._table.get(key)
        if entry is None or version not in entry[0]:
            self._refuse_version(call)
            return
        times = entry[3]
        times.count += 1
        timing = None
        if not times.count & times.mask:
            timing = slot.timing = slot.timing or RequestTiming(times, waited_ns)
        request, _ = entry[1].decode(frame, version, position)
        if isinstance(request, ProduceRequest) and session.template is None:
            session.template = self._template_of(frame, request, session.login is None)
        try:
            answer = entry[2](call, request)
        except ApiError as error:
            answer = refusal(key, error)
        if timing is not None:
            timing.handled()
        if answer is not None:
            call.answer(answer)

    def _refuse_version(self, call: Call) -> None:
        if call.api_key != _API_VERSIONS:
            client = escape(call.client_id or "")
            entry = self._table.get(call.api_key)
            served = "" if entry is None else f", only {shown(entry[0])}"
            raise UnknownVersion(
                f"API key {call.api_key} version {call.version} is not served{served} "
                f"(client '{client}')"
            )
        call.version = 0
        versions = ApiKey.API_VERSIONS.valid_versions
        own_range = ApiVersion(
            api_key=_API_VERSIONS, min_version=versions[0], max_version=versions[-1]
        )
        call.answer(
            ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own_range])
        )


def holds_refusal(api_key: int) -> bool:
    """Return True if the answer of an API has a field for an error of the whole request."""
    return any(field.name == "error_code" for field in response_class(api_key).fields)


def refusal(api_key: int, error: ApiError) -> Message:
    """Return an answer that has only an error for the whole request."""
    cls = response_class(api_key)
    names = {field.name for field in cls.fields}
    assert "error_code" in names, f"{cls.__name__} has no field for an error of the whole request"
    values: dict[str, Any] = {"error_code": error.code}
    if "error_message" in names:
        values["error_message"] = error.message
    return cls(**values)

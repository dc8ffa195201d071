"""From a frame to its handler, and from a refusal to the answer that carries it.

Floor: sessions. The table of handlers is the list of what is served on a listener: ApiVersions
shows it, and nothing else is answered. A key or version outside of it closes the connection, as
Kafka does; only ApiVersions itself is answered in version 0, so that a newer client can step down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.metrics.metrics import Metrics
from broker.metrics.times import ApiTimes, Timing
from broker.sessions.call import Asking, Call
from broker.sessions.pipeline import Slot
from protocol.errors import ApiError, ErrorCode, UnknownVersion
from protocol.log import escape
from protocol.messages.api import ApiKey, request_class, response_class
from protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from protocol.messages.headers import decode_request_header
from protocol.messages.produce import ProduceRequest
from protocol.wire.schema import Message

Handler = Callable[[Call, Any], Message | None]
"""Gives the answer, or None when it has parked the call or answered it already."""

_API_VERSIONS = int(ApiKey.API_VERSIONS)


class Dispatcher:
    """Starts requests: one for all sessions of clients, one for those of brokers."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        offered: Mapping[ApiKey, range],
        metrics: Metrics,
        lane_of: Callable[[memoryview, ProduceRequest], object],
    ) -> None:
        """`offered` are the versions of each API here. `lane_of` makes of a Produce what the next
        one of its session is compared with."""
        self._lane_of = lane_of
        self._metrics = metrics
        self._table: dict[int, tuple[range, type[Message], Handler, ApiTimes]] = {}
        self.serve(handlers, offered)

    def serve(self, handlers: Mapping[ApiKey, Handler], offered: Mapping[ApiKey, range]) -> None:
        """Serve these as well from here on."""
        assert handlers.keys() == offered.keys(), "what is offered and what is handled differ"
        for key, handler in handlers.items():
            self._table[int(key)] = (
                offered[key],
                request_class(key),
                handler,
                self._metrics.times_of(key),
            )

    def start(self, session: Asking, slot: Slot, frame: memoryview, waited_ns: int = 0) -> None:
        """Serve one request. Raises WireError when the connection must be closed for it."""
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
            timing = slot.timing = slot.timing or Timing(times, waited_ns)
        request, _ = entry[1].decode(frame, version, position)
        if isinstance(request, ProduceRequest) and session.lane is None:
            session.lane = self._lane_of(frame, request)
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
            raise UnknownVersion(
                f"API key {call.api_key} version {call.version} is not served (client '{client}')"
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
    """Whether the answer of an API has a place for a refusal of the whole request."""
    return any(field.name == "error_code" for field in response_class(api_key).fields)


def refusal(api_key: int, error: ApiError) -> Message:
    """An answer that carries nothing but a refusal of the whole request."""
    cls = response_class(api_key)
    names = {field.name for field in cls.fields}
    assert "error_code" in names, f"{cls.__name__} has no place for a refusal of the whole"
    values: dict[str, Any] = {"error_code": error.code}
    if "error_message" in names:
        values["error_message"] = error.message
    return cls(**values)

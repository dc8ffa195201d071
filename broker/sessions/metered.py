"""Gives each request of a listener with quotas its charge, before the request is served.

This module is pure. A listener has these objects only while there are quotas of users or client
ids. So requests cost nothing more without quotas.
"""

from __future__ import annotations

from typing import Any

from broker.sessions.call import RequestingSession
from broker.sessions.charges import Charge, Charging
from broker.sessions.pipeline import Slot, is_produce_frame
from broker.sessions.reception import FastPath, Starts
from protocol.messages.headers import decode_request_header


class MeteredStarts:
    """Serves requests on the normal path, each with a charge."""

    def __init__(self, inner: Starts, charging: Charging) -> None:
        self._inner = inner
        self._charging = charging

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        """Serve one request. Raises WireError if the connection must be closed."""
        charge = slot.charge = Charge(self._charging, len(frame))
        self._inner.start(session, slot, frame, waited_ns)
        if is_produce_frame(frame) and session.rights.user != "":
            charge.count_produce(session, decode_request_header(frame)[0].client_id)
        charge.handled()


class MeteredFastPath:
    """The fast path with a charge for each Produce."""

    def __init__(self, inner: FastPath, charging: Charging) -> None:
        self._inner = inner
        self._charging = charging

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        """Serve the Produce as `reception.FastPath` does. Return False if it must take the normal
        path."""
        charge = slot.charge = Charge(self._charging, len(frame))
        if not self._inner.start(session, slot, frame, template):
            return False
        charge.count_produce(session, template.client_id)
        charge.handled()
        return True

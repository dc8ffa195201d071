"""Produce."""

from __future__ import annotations

from broker.server.call import Call
from broker.server.services import Services
from protocol.messages.produce import ProduceRequest


def produce(services: Services, call: Call, request: ProduceRequest) -> None:
    """Stage the batches; they are written at the end of this read."""
    services.produces.append(call, request)

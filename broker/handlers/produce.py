"""Produce."""

from __future__ import annotations

from broker.node.services import Services
from broker.sessions.call import Call
from protocol.messages.produce import ProduceRequest


def produce(services: Services, call: Call, request: ProduceRequest) -> None:
    """Stage the batches; they are written at the end of this read."""
    services.produces.append(call, request)

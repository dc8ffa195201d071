"""The effects of `membership`: requests to the controller, and changes of this broker's state.

This module is pure data. The driver performs the effects in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.schema import Message


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to the controller. The driver reports its answer or failure with `number`."""

    number: int
    node_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """The metadata has this process with this broker epoch.

    The receiver calls `ready` when the broker can serve.
    """

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    """The broker is in service."""


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """The broker is not in service any more, because the controller declared it dead or because it
    is about to stop."""


@dataclass(frozen=True, slots=True)
class MayStop:
    """The broker may stop, because the cluster does not need it any more."""


@dataclass(frozen=True, slots=True)
class BrokerRefused:
    """The cluster does not accept this process. The text says why. No effect follows."""

    text: str


Effect = SendRequest | BrokerRegistered | BrokerUnfenced | BrokerFenced | MayStop | BrokerRefused

"""Handlers for requests of other voters: votes, begin and end of epochs, fetches of the log and of
its snapshots.

All requests go to the quorum's core, which answers when the content of the answer is durable.
"""

from __future__ import annotations

from broker.cluster.messenger import LinkMessenger
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from protocol.messages.api import ApiKey
from protocol.wire.schema import Message


def quorum_handlers(messenger: LinkMessenger) -> dict[ApiKey, Handler]:
    """Return the handlers of the quorum."""

    def ask(call: Call, request: Message) -> None:
        messenger.received(call, request)

    return dict.fromkeys(
        (
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.FETCH,
            ApiKey.FETCH_SNAPSHOT,
        ),
        ask,
    )

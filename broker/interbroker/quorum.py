"""What other voters ask of this one: votes, the begin and end of epochs, the log and its snapshots.

Floor: interbroker. All of it goes to the quorum's core, which answers when what the answer tells of
is durable.
"""

from __future__ import annotations

from broker.cluster.messenger import LinkMessenger
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from protocol.messages.api import ApiKey
from protocol.wire.schema import Message


def quorum_handlers(messenger: LinkMessenger) -> dict[ApiKey, Handler]:
    """By API, what the quorum answers."""

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

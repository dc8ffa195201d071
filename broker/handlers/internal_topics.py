"""Creates the topics of the coordinators when the first client needs them."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.metadata import Metadata
from broker.controller.outcome import CreateOwnTopic
from broker.sessions.call import Call


def with_topic(metadata: Metadata, call: Call, name: str, then: Callable[[], None]) -> None:
    """Call `then` once an internal topic exists. A missing topic is created.

    The client needs no right for this, because the broker creates the topic for itself.
    """
    if name in metadata.image.topics:
        then()
    else:
        metadata.submit(
            CreateOwnTopic(name),
            lambda _: then(),
            lambda _: then(),
            call.session.peer_host,
        )

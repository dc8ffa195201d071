"""Decides which users may replace their own SCRAM credential without ALTER on the cluster.

This module is pure. Kafka has no such right. Here the user of an enrolled host has it, because
the host replaces the secret of its join file by a password of its own, and later that password
(decision 0210). No other host has this user, so it cannot shut out another client.
"""

from __future__ import annotations

from typing import Any

from broker.metadata.image import MetadataImage
from protocol.messages.scram import AlterUserScramCredentialsRequest
from protocol.security.scram import Mechanism, is_same

ENROLLED_PREFIX = "collector."
"""The beginning of the names of users that `millrace enrol` makes."""


def is_enrolling(user: str, image: MetadataImage) -> bool:
    """Return True if a user has the credential of a join file, which the user may only replace."""
    found = (image.credentials.get((user, mechanism)) for mechanism in Mechanism)
    return any(one is not None and one.is_enrolment for one in found)


def changes_own_credential(order: Any, image: MetadataImage, user: str, now_ms: int) -> bool:
    """Return True if a request only replaces the credential with which its client has logged in.

    Of two clients with the same join file only one can do this: when the request of the second one
    is decided, the image has the credential of the first one, so the comparison fails.
    """
    if not isinstance(order, AlterUserScramCredentialsRequest):
        return False
    if order.deletions or len(order.upsertions) != 1 or not user.startswith(ENROLLED_PREFIX):
        return False
    (change,) = order.upsertions
    if change.name != user or change.enrolment_ms or change.mechanism not in list(Mechanism):
        return False
    present = image.credentials.get((user, Mechanism(change.mechanism)))
    return (
        present is not None
        and not present.has_expired(now_ms)
        and is_same(present.stored_key, bytes(order.login_key))
    )

"""A started request, as the code that serves it sees it.

This code answers each request exactly once, at once or later. The connection sends the answers in
the order of the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker.security.rights import EVERYTHING, RequestRights, Rights
from broker.sessions.login import Login
from broker.sessions.pipeline import Slot
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.headers import encode_response, encode_response_chunks
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)

_FETCH = int(ApiKey.FETCH)
_PRODUCE = int(ApiKey.PRODUCE)

FAULT = "internal error of the broker"
"""The logged reason when an internal error closes a connection. The error itself has its own log
entry."""


class WaitingFetch(Protocol):
    """A parked Fetch. The session uses these methods."""

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Inspect the frames that wait for the answer of this fetch. End the wait early if one of
        them needs that.

        Each call passes the same frames as the call before, possibly followed by more.
        """

    def make_way(self) -> None:
        """End the wait early, because the connection reads nothing more before the answer is
        sent."""

    def forget(self) -> None:
        """End the wait without an answer, because the connection is closed."""

    def drop(self) -> None:
        """End the wait without an answer, so that the connection can continue with its next
        request."""


class RequestingSession(Protocol):
    """A session. The code that serves its requests uses these attributes and methods."""

    parked_fetch: WaitingFetch | None
    """The session's parked Fetch; None if there is none."""
    template: Any
    """The template of the last Produce, with which the next Produce is compared
    (`reception.RequestTemplate`)."""
    has_staged: bool
    """True if batches of this session are staged and will be written at the end of its read."""

    number: int
    """A number that rises in the order in which connections were accepted."""

    login: Login | None
    """The client's login, on a listener that requires one."""

    rights: Rights
    """What the client may do."""

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed, so that no answer can be sent."""

    @property
    def listener_name(self) -> str:
        """The name of the listener to which the client is connected."""

    @property
    def peer(self) -> str:
        """`host:port` of the client, for logs."""

    @property
    def peer_host(self) -> str:
        """The client's address, without its port."""

    @property
    def peer_id(self) -> int | None:
        """The id of the other broker, as in `Link.peer_id`."""

    @property
    def has_ended(self) -> bool:
        """True if the peer has closed its side, or this broker has closed the connection."""

    def on_end(self, told: Callable[[], None]) -> None:
        """Call `told` once when either side closes the connection.

        Requests that were received before can still be served afterwards.
        """

    def answered(self) -> None:
        """Send the answers that are ready, because a request of the session got its answer."""

    def hold(self, slot: Slot) -> None:
        """Start no later request until `let_go` is called."""

    def let_go(self, slot: Slot) -> None:
        """Let later requests start again."""

    def attempt(self, work: Callable[[], None]) -> None:
        """Do work for a request outside of a read. If it raises an exception, only this session is
        closed."""

    def throttle(self, pause_ms: int) -> None:
        """Start no request for this time, and read nothing, because the client is over a quota."""

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """Close the connection."""


class Call:
    """One started request: the session to answer, and the version of the answer."""

    __slots__ = (
        "_limited",
        "api_key",
        "client_id",
        "correlation_id",
        "session",
        "slot",
        "version",
    )

    def __init__(
        self,
        session: RequestingSession,
        slot: Slot,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.session = session
        self.slot = slot
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self._limited: RequestRights | None = None
        """The client's rights for this request, if it may not do everything."""

    @property
    def listener_name(self) -> str:
        """The name of the client's listener. Answers contain the addresses that brokers have on
        this listener."""
        return self.session.listener_name

    @property
    def asker(self) -> tuple[str, str | None]:
        """The client's address, and the user whose rights the controller checks."""
        session = self.session
        return session.peer_host, session.rights.user

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return True if the client may do this now. `is_logged` is as in `Asker.may`.

        If the answer is sent later, call this again before, because the client can lose the right
        in between.
        """
        rights = self.session.rights
        if rights is EVERYTHING:
            return True
        if self._limited is None:
            self._limited = RequestRights(rights, ApiKey(self.api_key))
        return self._limited.may(operation, resource_type, name, is_logged=is_logged)

    def may_describe_topic(self, topic: str, *, is_logged: bool = True) -> bool:
        """Return True if the client may see the topic. `is_logged` is as in `Asker.may`."""
        return self.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_logged=is_logged)

    def may_read_topic(self, topic: str) -> bool:
        """Return True if the client may read the topic, and commit offsets for it."""
        return self.may(AclOperation.READ, AclResource.TOPIC, topic)

    def may_use_group(self, group_id: str) -> bool:
        """Return True if the client may be a member of the group, and commit offsets for it."""
        return self.may(AclOperation.READ, AclResource.GROUP, group_id)

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        """Return True if the client may write under the transactional id."""
        return self.may(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)

    def may_with_cluster(self, operation: AclOperation, *, is_logged: bool = True) -> bool:
        """Return True if the client may do this with the cluster."""
        return self.may(operation, AclResource.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def need_of_cluster(self, operation: AclOperation) -> None:
        """Raise ApiError unless the client may do this with the cluster."""
        if not self.may_with_cluster(operation):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def answer(self, response: Message) -> None:
        """Set the answer. It is sent after the answers of all earlier requests."""
        if self.session.is_closed:
            return
        version, correlation_id, api_key = self.version, self.correlation_id, self.api_key
        slot = self.slot
        if slot.timing is not None:
            slot.timing.ready()
        if slot.charge is not None:
            slot.charge.settle(self.session, api_key, self.client_id, response)
        answer: Sequence[object]
        try:
            if api_key == _FETCH:
                answer = encode_response_chunks(response, version, correlation_id, api_key)
            else:
                answer = (encode_response(response, version, correlation_id, api_key),)
        except EncodeError:
            # Raise nothing, because the caller can be a timer or an fsync that also serves other
            # requests.
            logger.exception(
                "an answer could not be encoded; the connection is closed",
                extra=fields(peer=self.session.peer),
            )
            self.session.close(FAULT, is_logged=False)
            return
        slot.answer = answer
        self.session.answered()

    def answer_nothing(self) -> None:
        """Finish the request without an answer (Produce with acks=0)."""
        if self.slot.charge is not None and self.api_key == _PRODUCE:
            self.slot.charge.settle_produce(self.session, self.client_id, is_answered=False)
        self.slot.answer = ()
        self.session.answered()

    def hang_up(self, reason: str) -> None:
        """Close the connection. With acks=0 this is the only way to report an error to the
        client."""
        self.session.close(reason)

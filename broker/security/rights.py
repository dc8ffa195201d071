"""The rights of one client, by the ACLs that are in force.

This module is pure. A client on a listener without a login may do everything (`EVERYTHING`). A
client that has logged in may do what the ACLs allow to its user from its address. A super user may
do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from broker.security.acl_table import NO_ACLS, AclTable
from broker.security.denials import Denial, NotesDenials, RequestDenials
from protocol.messages.api import ApiKey
from protocol.security.acl import SUPPORTED_OPERATIONS, USER_PREFIX, AclOperation, AclResource
from protocol.security.address import normal_host

CACHED_MAX = 10_000
"""The largest number of decisions that are cached for one client."""


class Rights(Protocol):
    """The rights of one client."""

    @property
    def user(self) -> str | None:
        """The user that has these rights; None for a client that may do everything without a
        login."""

    def allows(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        """Return True if the client may do this now."""

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        """Return True if there can be a resource of this type with which the client may do this."""

    def denied(
        self, operation: AclOperation, resource_type: AclResource, name: str, request: ApiKey
    ) -> None:
        """Note that a request was refused, because the client may not do this."""


class Asker(Protocol):
    """A request of a client, as the code sees it that decides what the client may do."""

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return True if the client may do this.

        A denial is logged if it is the reason of an error in the answer. Pass `is_logged=False` if
        the answer only leaves something out, or if another right can be enough.
        """


class Unlimited:
    """The rights of a client on a listener without a login."""

    user = None

    def allows(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        return True

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        return True

    def denied(
        self, operation: AclOperation, resource_type: AclResource, name: str, request: ApiKey
    ) -> None:
        raise AssertionError("nothing is denied to a client without a login")


EVERYTHING = Unlimited()


class NotKnownYet:
    """The rights of a client that must log in and has not done so."""

    user = ""

    def allows(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        return False

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        return False

    def denied(
        self, operation: AclOperation, resource_type: AclResource, name: str, request: ApiKey
    ) -> None:
        """Note nothing, because no user is known yet. Such a request closes the connection."""


NOTHING = NotKnownYet()


class _LoggedIn:
    """The user and the address of a client that has logged in, and the log of its denials."""

    def __init__(self, user: str, host: str, denials: NotesDenials) -> None:
        self.user = user
        self._host = normal_host(host)
        self._denials = denials

    def denied(
        self, operation: AclOperation, resource_type: AclResource, name: str, request: ApiKey
    ) -> None:
        denial = Denial(self.user, self._host, operation, resource_type, name, request)
        self._denials.note(denial)


class EnrolmentRights(_LoggedIn):
    """The rights of a user with the credential of a join file.

    The user may only replace this credential. The controller permits that (`own_credentials`), so
    this class allows nothing, whatever the ACLs say.
    """

    def allows(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        return False

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        return False


class UserRights(_LoggedIn):
    """The rights of a user that has logged in. Decisions are cached until the ACLs change."""

    def __init__(
        self,
        user: str,
        host: str,
        table_of: Callable[[], AclTable],
        super_users: Collection[str],
        denials: NotesDenials,
    ) -> None:
        """`table_of` returns the ACLs in force. `super_users` are names without `User:`."""
        super().__init__(user, host, denials)
        self._principal = USER_PREFIX + user
        self._table_of = table_of
        self._is_super = user in super_users
        self._table = NO_ACLS
        self._cached: dict[tuple[AclOperation, AclResource, str | None], bool] = {}

    def allows(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        if self._is_super:
            return True
        key = (operation, resource_type, name)
        found = self._known(key)
        if found is None:
            found = self._cached[key] = self._table.allows(
                self._principal, self._host, operation, resource_type, name
            )
        return found

    def allows_any(self, operation: AclOperation, resource_type: AclResource) -> bool:
        if self._is_super:
            return True
        key = (operation, resource_type, None)
        found = self._known(key)
        if found is None:
            found = self._cached[key] = self._table.allows_any(
                self._principal, self._host, operation, resource_type
            )
        return found

    def _known(self, key: tuple[AclOperation, AclResource, str | None]) -> bool | None:
        table = self._table_of()
        if table is not self._table or len(self._cached) >= CACHED_MAX:
            self._table = table
            self._cached.clear()
        return self._cached.get(key)


class RequestRights:
    """The rights of one client for one request, whose denials are noted."""

    __slots__ = ("_denials", "_rights")

    def __init__(self, rights: Rights, request: ApiKey) -> None:
        self._rights = rights
        self._denials = RequestDenials(request)

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Decide as `Asker.may` says."""
        if self._rights.allows(operation, resource_type, name):
            return True
        if is_logged:
            self._denials.note(self._rights, operation, resource_type, name)
        return False


_ALL_BITS = {
    kind: sum(1 << operation for operation in operations)
    for kind, operations in SUPPORTED_OPERATIONS.items()
}


def operation_bits(rights: Rights, resource_type: AclResource, name: str) -> int:
    """Return the operations that a client may do with a resource, as a number with one bit per
    operation, as in Kafka."""
    if rights is EVERYTHING:
        return _ALL_BITS[resource_type]
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if rights.allows(operation, resource_type, name)
    )

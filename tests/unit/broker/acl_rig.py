"""A test broker with ACLs. A test sends requests as a logged-in user, or as a client without a
login."""

from __future__ import annotations

from typing import Any

from broker.security.denials import Denial
from broker.security.rights import UserRights
from protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from protocol.security.acl import AclEntry
from protocol.wire.schema import Message
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.security.acls import NotedDenials

HOST = "127.0.0.1"


def creation(entry: AclEntry) -> AclCreation:
    return AclCreation(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        resource_pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def exact_filter(entry: AclEntry) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=entry.resource_type,
        resource_name_filter=entry.resource_name,
        pattern_type_filter=entry.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def anything() -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


class AclRig(Rig):
    """A broker with ACLs. `ask` sends a request without a login, which needs no right. `ask_as`
    sends it as a logged-in user. `denials` has the denials that were noted."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.denials = NotedDenials()
        audit = self.broker.listeners.audit
        to_log = audit.note

        def note(denial: Denial) -> None:
            self.denials.note(denial)
            to_log(denial)

        audit.note = note  # type: ignore[method-assign]

    def allow(self, *entries: AclEntry) -> None:
        """Create these ACLs, which can also deny."""
        request = CreateAclsRequest(creations=[creation(one) for one in entries])
        assert all(one.error_code == 0 for one in self.ask(request, 3).results)

    def withdraw(self, *entries: AclEntry) -> None:
        """Delete these ACLs. Without arguments, delete all ACLs."""
        filters = [exact_filter(one) for one in entries] or [anything()]
        answer = self.ask(DeleteAclsRequest(filters=filters), 3)
        assert all(one.error_code == 0 for one in answer.filter_results)

    def rights_of(self, user: str) -> UserRights:
        metadata = self.broker.parts.metadata
        supers = self.broker.parts.settings.config.super_user_names
        audit = self.broker.listeners.audit
        return UserRights(user, HOST, lambda: metadata.image.acls, supers, audit)

    def start_as(self, message: Message, version: int, user: str = "shop") -> Asked:
        """Start a request of this user, and do not wait for its answer."""
        asked = Asked(message, version, "HOST")
        asked.session.rights = self.rights_of(user)
        self.start_request(asked)
        return asked

    def settle(self, asked: Asked) -> Any:
        """Sync the disk until the request is answered, and return the answer."""
        for _ in range(4):
            if not asked.is_answered():
                self.flusher.sync()
                self.turn()
        return asked.answer

    def ask_as(self, message: Message, version: int, user: str = "shop") -> Any:
        return self.settle(self.start_as(message, version, user))

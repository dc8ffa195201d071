"""The denied operations of clients, for the log and for a metric.

This module is pure. The first denial of an interval is logged at once, and the repeated ones as a
number at its end. A client that repeats a refused request in a loop would otherwise fill the disk.
The number of denials that are remembered is limited, for each user too, so that one user does not
hide the denials of the others.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol

from protocol.messages.api import ApiKey
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource

INTERVAL_MS = 60_000

DENIALS_MAX = 1_000
"""The number of different denials that are remembered in an interval."""

OF_USER_MAX = 100
"""The number of different denials of one user that are remembered in an interval."""

OF_REQUEST_MAX = 100
"""The number of different denials of one request that are counted once. Further ones can be counted
more than once."""

NAME_CHARACTERS_MAX = 256
"""The longest name that is remembered. A request can name a resource with up to 32 KiB."""


class Denial(NamedTuple):
    """An operation that a user may not do from an address, and the request that asked for it."""

    user: str
    host: str
    operation: AclOperation
    resource_type: AclResource
    name: str
    request: ApiKey

    @property
    def resource(self) -> str:
        """The resource, as `millrace acl explain` takes it."""
        kind = self.resource_type.name.lower().replace("_", "-")
        return kind if self.name == CLUSTER_NAME else f"{kind}:{self.name}"


class NotesDenials(Protocol):
    """Takes the denials of clients."""

    def note(self, denial: Denial) -> None:
        """Count a denial, and log it unless it repeats an earlier one."""


class _Repeats:
    """How often a denial was repeated since it was logged."""

    __slots__ = ("count", "ends_ms")

    def __init__(self, ends_ms: int, count: int = 0) -> None:
        self.ends_ms = ends_ms
        self.count = count


class DueDenials(NamedTuple):
    """The denials that were not logged at once."""

    repeated: list[tuple[Denial, int]]
    """Logged denials, each with the number of its repetitions."""
    left_out: list[tuple[str, int]]
    """Users, each with the number of denials that were not remembered one by one."""


class DenialLog:
    """The denials of all clients of one broker."""

    def __init__(self) -> None:
        self._known: dict[Denial, _Repeats] = {}
        self._left_out: dict[str, _Repeats] = {}
        self._count_of: Counter[str] = Counter()
        """The number of remembered denials of each user."""

    def note(self, denial: Denial, now_ms: int) -> bool:
        """Count a denial. Return True if it must be logged now."""
        denial = denial._replace(name=denial.name[:NAME_CHARACTERS_MAX])
        known = self._known.get(denial)
        if known is not None:
            known.count += 1
            return False
        user = denial.user
        if len(self._known) >= DENIALS_MAX or self._count_of[user] >= OF_USER_MAX:
            left_out = self._left_out.setdefault(user, _Repeats(now_ms + INTERVAL_MS))
            left_out.count += 1
            return False
        self._known[denial] = _Repeats(now_ms + INTERVAL_MS)
        self._count_of[user] += 1
        return True

    def due(self, now_ms: int) -> DueDenials:
        """Return the numbers of repetitions of the intervals that have ended. Call this about every
        second.

        A denial that was repeated begins another interval at once, so it is a number again there.
        """
        found = DueDenials([], [])
        for denial, one in [*self._known.items()]:
            if one.ends_ms <= now_ms:
                if one.count:
                    found.repeated.append((denial, one.count))
                    self._known[denial] = _Repeats(now_ms + INTERVAL_MS)
                else:
                    self._forget(denial)
        for user, one in [*self._left_out.items()]:
            if one.ends_ms <= now_ms:
                found.left_out.append((user, one.count))
                del self._left_out[user]
        return found

    def close(self) -> DueDenials:
        """Return all numbers now, because the broker stops."""
        repeated = [(denial, one.count) for denial, one in self._known.items() if one.count]
        left_out = [(user, one.count) for user, one in self._left_out.items()]
        self._known.clear()
        self._left_out.clear()
        self._count_of.clear()
        return DueDenials(repeated, left_out)

    def _forget(self, denial: Denial) -> None:
        del self._known[denial]
        self._count_of[denial.user] -= 1
        if not self._count_of[denial.user]:
            del self._count_of[denial.user]


class DeniedClient(Protocol):
    """The rights of a client, as its denials see them."""

    def denied(
        self, operation: AclOperation, resource_type: AclResource, name: str, request: ApiKey
    ) -> None:
        """Note that a request was refused."""


class RequestDenials:
    """The denials of one request. Each is noted once, however many partitions the request names."""

    __slots__ = ("_noted", "_request")

    def __init__(self, request: ApiKey) -> None:
        self._request = request
        self._noted: set[tuple[AclOperation, AclResource, str]] = set()

    def note(
        self, client: DeniedClient, operation: AclOperation, resource_type: AclResource, name: str
    ) -> None:
        """Note a denial, unless the request has the same one already."""
        denied = operation, resource_type, name
        if denied in self._noted:
            return
        if len(self._noted) < OF_REQUEST_MAX:
            self._noted.add(denied)
        client.denied(operation, resource_type, name, self._request)

"""Which denials are logged at once, which are only counted, and how many are remembered."""

from __future__ import annotations

import pytest

from broker.security import denials as module
from broker.security.denials import INTERVAL_MS, NAME_CHARACTERS_MAX, Denial, DenialLog, DueDenials
from protocol.messages.api import ApiKey
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource

NOTHING = DueDenials([], [])


def denial(name: str = "logs", user: str = "shop", host: str = "10.0.0.1") -> Denial:
    return Denial(user, host, AclOperation.READ, AclResource.TOPIC, name, ApiKey.FETCH)


def test_the_first_denial_is_logged_and_the_others_are_a_number() -> None:
    log = DenialLog()
    assert log.note(denial(), 0)
    assert not any(log.note(denial(), now_ms) for now_ms in range(1, 6))
    assert log.due(INTERVAL_MS - 1) == NOTHING
    assert log.due(INTERVAL_MS) == DueDenials([(denial(), 5)], [])
    # The next interval has a number too, and no second line of the first kind.
    assert not log.note(denial(), INTERVAL_MS + 1)
    assert log.due(2 * INTERVAL_MS) == DueDenials([(denial(), 1)], [])
    assert log.due(3 * INTERVAL_MS) == NOTHING
    assert log.note(denial(), 3 * INTERVAL_MS)


@pytest.mark.parametrize(
    "other",
    [
        denial(user="web"),
        denial(host="10.0.0.2"),
        denial(name="other"),
        denial()._replace(operation=AclOperation.WRITE),
        denial()._replace(resource_type=AclResource.GROUP),
        denial()._replace(request=ApiKey.LIST_OFFSETS),
    ],
)
def test_another_denial_has_its_own_line(other: Denial) -> None:
    log = DenialLog()
    assert log.note(denial(), 0) and log.note(other, 0)
    assert not log.note(denial(), 1) and not log.note(other, 1)


def test_one_user_does_not_hide_the_denials_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OF_USER_MAX", 3)
    log = DenialLog()
    assert [log.note(denial(f"t-{number}"), 0) for number in range(10)] == [True] * 3 + [False] * 7
    assert log.note(denial(user="web"), 0)
    assert log.due(INTERVAL_MS) == DueDenials([], [("shop", 7)])
    # The places are free again.
    assert log.note(denial("t-9"), INTERVAL_MS)


def test_memory_is_limited_for_all_users_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENIALS_MAX", 4)
    log = DenialLog()
    logged = [log.note(denial(user=f"user-{number}"), 0) for number in range(6)]
    assert logged == [True] * 4 + [False] * 2
    assert log.close() == DueDenials([], [("user-4", 1), ("user-5", 1)])
    assert log.close() == NOTHING


def test_a_long_name_is_shortened() -> None:
    log = DenialLog()
    assert log.note(denial("x" * 30_000), 0)
    assert not log.note(denial("x" * 30_000), 0)
    (found, count), *_ = log.close().repeated
    assert (len(found.name), count) == (NAME_CHARACTERS_MAX, 1)


def test_a_resource_is_named_as_in_the_commands() -> None:
    of_cluster = denial(CLUSTER_NAME)._replace(resource_type=AclResource.CLUSTER)
    of_id = denial("t")._replace(resource_type=AclResource.TRANSACTIONAL_ID)
    found = [one.resource for one in (denial(), of_cluster, of_id)]
    assert found == ["topic:logs", "cluster", "transactional-id:t"]

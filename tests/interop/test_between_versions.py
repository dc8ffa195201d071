"""Requests between brokers, and stored records, still have the form that 1.0.0-rc1 reads and
writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.api import BETWEEN_BROKERS, FORWARDED, ApiKey
from protocol.messages.membership import BrokerRegistrationRequest, DamagedTopic
from tests.harness import ROOT
from tests.harness.released import released_code

SCRIPT = """
import json
from broker.metadata.records import _CLASSES
from protocol.messages.api import BETWEEN_BROKERS, request_class, response_class

def shape(cls, version):
    return [one_field(field, version) for field in cls.fields if field.in_version(version)]

def one_field(field, version):
    element = field.element
    if isinstance(element, type):
        element = shape(element, version)
    elif element is not None:
        element = element.kind
    return [field.kind, element, field.tag, field.nullable_in(version)]

found = {}
for key, versions in BETWEEN_BROKERS.items():
    for side, cls in ("request", request_class(key)), ("response", response_class(key)):
        for version in versions:
            name = f"{key.name} {side} {version}"
            found[name] = [version >= cls.flexible_from, shape(cls, version)]
for key, cls in _CLASSES.items():
    for version in cls.valid_versions:
        found[f"record {key} {version}"] = [version >= cls.flexible_from, shape(cls, version)]
print(json.dumps(found))
"""

NEVER_SENT = ("ADD_RAFT_VOTER ", "REMOVE_RAFT_VOTER ")
"""Requests that 1.0.0-rc1 lists, but that its brokers never send. Clients send them since."""


def forms(code: Path) -> dict[str, Any]:
    """Return the fields of each request and record in each version, as declared by this code."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=code, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return forms(released_code(tmp_path_factory.mktemp("released")))


def test_what_brokers_of_1_0_0_rc1_send_and_read_has_not_changed(released: dict[str, Any]) -> None:
    """If this test fails, do not change the old form. Add a new version of the request, or a new
    level of the metadata log. A further tagged field is the exception: brokers that do not know it
    skip it (KIP-482), as the next test shows."""
    present = forms(ROOT)
    sent = {name: form for name, form in released.items() if not name.startswith(NEVER_SENT)}
    assert len(sent) > 40
    known = {name: without_new_tags(present.get(name), form) for name, form in sent.items()}
    assert known == sent


def without_new_tags(present: Any, released: Any) -> Any:
    """Return a form of today without the tagged fields of its top level that the released form does
    not have."""
    if present is None:
        return None
    is_flexible, fields = present
    tags = {tag for _, _, tag, _ in released[1]}
    return [is_flexible, [one for one in fields if one[2] is None or one[2] in tags]]


RANGES = """
import json
from protocol.messages.api import BETWEEN_BROKERS, DECLARED
from broker.cluster.envelopes import PASSED_ON
print(json.dumps([
    {key.name: list(versions) for key, versions in BETWEEN_BROKERS.items()},
    {key.name: list(key.valid_versions) for key in PASSED_ON.values()},
]))
"""

NEVER_FORWARDED = {
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}
"""Orders that need a level which no cluster with a broker of 1.0.0-rc1 has."""


NOT_AT_ITS_LEVEL = {ApiKey.UPDATE_RAFT_VOTER}
"""Requests between brokers that are not sent at a level which a broker of 1.0.0-rc1 supports."""


def test_a_broker_of_1_0_0_rc1_understands_the_first_version_of_each_request(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A broker of 1.0.0-rc1 does not answer ApiVersions on this listener, so it gets the first
    versions only."""
    code = released_code(tmp_path_factory.mktemp("released"))
    done = subprocess.run(
        [sys.executable, "-c", RANGES], cwd=code, capture_output=True, text=True, check=True
    )
    between, forwarded = json.loads(done.stdout)
    for key, versions in BETWEEN_BROKERS.items():
        if key in NOT_AT_ITS_LEVEL:
            assert key.name not in between
            continue
        assert versions[0] in between[key.name], key
    sent = FORWARDED.keys() - NEVER_FORWARDED
    assert {key.name for key in sent} == forwarded.keys()
    for key in sent:
        assert FORWARDED[key][0] in forwarded[key.name], key


READ = """
import sys
from protocol.messages.membership import BrokerRegistrationRequest
request, _ = BrokerRegistrationRequest.decode(bytes.fromhex(sys.argv[1]), 4)
print(request.broker_id, request.previous_broker_epoch, [one.name for one in request.damaged])
"""


def test_a_broker_of_1_0_0_rc1_skips_a_tagged_field_that_it_does_not_know(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    request = BrokerRegistrationRequest(
        broker_id=7,
        previous_broker_epoch=8,
        damaged=[DamagedTopic(name="logs", partitions=[1])],
        can_be_old_copy=True,
    )
    done = subprocess.run(
        [sys.executable, "-c", READ, request.encode(4).hex()],
        cwd=released_code(tmp_path_factory.mktemp("released")),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "7 8 ['logs']\n"

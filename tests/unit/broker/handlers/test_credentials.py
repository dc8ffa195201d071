"""DescribeUserScramCredentials and AlterUserScramCredentials: Kafka's answers and errors."""

from __future__ import annotations

import random

import pytest

from broker.controller import credentials
from protocol.errors import ErrorCode
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from protocol.security.scram import Mechanism, credential_of
from tests.unit.broker.rig import Rig

SALT = b"sixteen of bytes"
SALTED = b"k" * 64


def upsertion(
    name: str = "shop",
    mechanism: int = Mechanism.SHA_512,
    iterations: int = 4_096,
    salt: bytes = SALT,
    salted: bytes | None = None,
) -> ScramCredentialUpsertion:
    if salted is None:
        salted = SALTED if mechanism == Mechanism.SHA_512 else SALTED[:32]
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def altered(
    rig: Rig, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> list[tuple[str, int]]:
    """Change these credentials. Return the error code of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    return [(one.user, one.error_code) for one in rig.ask(request, 0).results]


def described(rig: Rig, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    users = [UserName(name=name) for name in names] or None
    answer = rig.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    return [
        (one.user, one.error_code, [(of.mechanism, of.iterations) for of in one.credential_infos])
        for one in answer.results
    ]


def test_what_is_written_is_described_and_survives_a_restart() -> None:
    rig = Rig()
    assert altered(rig, upsertion(), upsertion("web", Mechanism.SHA_256, 8_192)) == [
        ("shop", 0),
        ("web", 0),
    ]
    assert altered(rig, upsertion(mechanism=Mechanism.SHA_256)) == [("shop", 0)]
    both = [("shop", 0, [(1, 4_096), (2, 4_096)]), ("web", 0, [(1, 8_192)])]
    assert described(rig) == both
    rig.power_cut(random.Random(1))
    assert described(rig) == both
    kept = rig.broker.metadata.image.credentials["shop", Mechanism.SHA_512]
    assert kept == credential_of(SALTED, SALT, 4_096, "sha512")
    assert altered(rig, ScramCredentialDeletion(name="shop", mechanism=2)) == [("shop", 0)]
    assert described(rig, "shop") == [("shop", 0, [(1, 4_096)])]


def test_what_is_not_there_and_what_is_named_twice() -> None:
    rig = Rig()
    altered(rig, upsertion())
    gone, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert described(rig, "web", "shop", "shop") == [("web", gone, []), ("shop", twice, [])]
    assert altered(rig, ScramCredentialDeletion(name="shop", mechanism=1)) == [("shop", gone)]
    both = (ScramCredentialDeletion(name="shop", mechanism=2), upsertion(), upsertion("web"))
    assert altered(rig, *both) == [("shop", twice), ("web", 0)]
    assert described(rig, "shop") == [("shop", 0, [(2, 4_096)])]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion(name="", mechanism=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name="a", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b"s" * 3_000), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted=b"k" * 32), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_credentials_that_are_refused(
    change: ScramCredentialDeletion | ScramCredentialUpsertion, code: ErrorCode
) -> None:
    assert altered(Rig(), change) == [(change.name, code)]


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b", "User:shop", "é", "n" * 65, "a\n", "*"])
def test_pitfall_9_a_name_that_could_not_log_in_is_refused(name: str) -> None:
    """Redpanda #9567, #15253: such users could be created, but no client could log in as one of
    them."""
    assert altered(Rig(), upsertion(name)) == [(name, ErrorCode.UNACCEPTABLE_CREDENTIAL)]


def test_the_number_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "USERS_MAX", 2)
    rig = Rig()
    full = ErrorCode.POLICY_VIOLATION
    users = [upsertion("a"), upsertion("b"), upsertion("c")]
    assert altered(rig, *users) == [("a", 0), ("b", 0), ("c", full)]
    assert altered(rig, upsertion("b", Mechanism.SHA_256)) == [("b", 0)]
    # A version with a higher limit can have created more users, so they can still be changed and
    # removed.
    monkeypatch.setattr(credentials, "USERS_MAX", 1)
    assert altered(rig, upsertion("a")) == [("a", 0)]
    assert altered(rig, ScramCredentialDeletion(name="b", mechanism=1)) == [("b", 0)]

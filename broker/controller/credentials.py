"""Decides AlterUserScramCredentials: write and delete SCRAM credentials of users (KIP-554).

This module is pure. The errors are Kafka's. Each user succeeds or fails alone. A name that cannot
be used to log in is refused here, because Redpanda let users be created that could not log in
(#9567, #15253).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from broker.controller.outcome import ControllerDecision
from broker.metadata.credential_records import credential_record
from broker.metadata.image import MetadataImage
from broker.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    Mechanism,
    credential_of,
)

USER_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
NAME_EXPECTED = "1 to 64 letters, digits, dots, underscores and hyphens"

SALT_BYTES_MIN, SALT_BYTES_MAX = 8, MESSAGE_BYTES_MAX // 4

ENROLMENT_MS_MAX = 30 * 24 * 3_600_000
"""The longest time in milliseconds for which the credential of a join file is valid."""

CredentialChange = ScramCredentialDeletion | ScramCredentialUpsertion

USERS_MAX = 10_000
"""The most users of a cluster; each takes a few hundred bytes in every broker."""


def alter_credentials(
    request: AlterUserScramCredentialsRequest, image: MetadataImage, now_ms: int
) -> ControllerDecision[AlterUserScramCredentialsResponse]:
    """Decide AlterUserScramCredentials, each user of the request separately. `now_ms` is wall
    time."""
    changes: list[CredentialChange] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    names = {name for name, _ in image.credentials}
    records: list[MetadataRecord] = []
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        result = results[change.name] = AlterUserScramCredentialsResult(user=change.name)
        try:
            if counts[change.name] > 1:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "a user credential cannot be altered twice in the same request",
                )
            record = _record_of(change, image, now_ms)
            if change.name not in names and len(names) >= USERS_MAX:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the cluster already has {USERS_MAX} users, which is the limit: delete some",
                )
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            records.append(record)
            names.add(change.name)
    return ControllerDecision(
        records, AlterUserScramCredentialsResponse(results=list(results.values()))
    )


def _record_of(change: CredentialChange, image: MetadataImage, now_ms: int) -> MetadataRecord:
    """Return the record of one change. Raises ApiError."""
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the name of the user is empty")
    try:
        mechanism = Mechanism(change.mechanism)
    except ValueError as error:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"found mechanism {change.mechanism}, expected 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)",
        ) from error
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, mechanism) not in image.credentials:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"user '{change.name}' has no credential for {mechanism.sasl_name}",
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism)
    _check(change, mechanism)
    made = credential_of(change.salted_password, change.salt, change.iterations, mechanism.digest)
    if change.enrolment_ms:
        ends_ms = now_ms + change.enrolment_ms
        made = replace(made, is_enrolment=True, expires_at_ms=ends_ms)
    return credential_record((change.name, mechanism), made)


def _check(change: ScramCredentialUpsertion, mechanism: Mechanism) -> None:
    """Raise ApiError if a credential could not be used to log in, or would be weak."""
    size = mechanism.digest_bytes
    faults = (
        (not USER_NAME.fullmatch(change.name), f"the name must have {NAME_EXPECTED}"),
        (
            not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX,
            f"found {change.iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        ),
        (
            not SALT_BYTES_MIN <= len(change.salt) <= SALT_BYTES_MAX,
            f"found a salt of {len(change.salt)} bytes,"
            f" expected {SALT_BYTES_MIN} to {SALT_BYTES_MAX}",
        ),
        (
            len(change.salted_password) != size,
            f"found a salted password of {len(change.salted_password)} bytes, expected {size}",
        ),
        (
            not 0 <= change.enrolment_ms <= ENROLMENT_MS_MAX,
            f"found a join file valid for {change.enrolment_ms} ms, expected at most"
            f" {ENROLMENT_MS_MAX}",
        ),
    )
    for is_wrong, text in faults:
        if is_wrong:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)

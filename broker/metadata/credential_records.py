"""Converts the SCRAM credential of a user to its metadata record and back.

This module is pure.
"""

from broker.metadata.records import UserScramCredentialRecord
from protocol.security.scram import Mechanism, ScramCredential

CredentialKey = tuple[str, Mechanism]
"""A user's name, and the mechanism of one of the user's credentials."""


def credential_in(record: UserScramCredentialRecord) -> ScramCredential:
    """Return the credential that a record has."""
    return ScramCredential(
        record.salt,
        record.stored_key,
        record.server_key,
        record.iterations,
        record.is_enrolment,
        record.expires_at_ms,
    )


def credential_record(key: CredentialKey, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the record that gives a user a credential."""
    name, mechanism = key
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
        is_enrolment=credential.is_enrolment,
        expires_at_ms=credential.expires_at_ms,
    )

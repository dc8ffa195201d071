"""The SCRAM credentials of users: list them and change them (KIP-554).

This module has only data classes. `mechanism` is 1 for SCRAM-SHA-256 and 2 for SCRAM-SHA-512. The
tagged fields are this project's own, and Kafka ignores them (decision 0210).
"""

from protocol.messages.api import ApiKey
from protocol.messages.membership import OUR_TAGS
from protocol.wire.schema import Message, Struct, array, bytes_, int8, int16, int32, int64, string


class UserName(Struct):
    """The name of a user."""

    name: str = string()


class DescribeUserScramCredentialsRequest(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    """Ask which credentials users have. None and an empty list ask for all users."""

    users: list[UserName] | None = array(UserName, nullable=0)


class CredentialInfo(Struct):
    """One credential of a user, without its secrets."""

    mechanism: int = int8()
    iterations: int = int32()
    enrolment_ends_ms: int = int64(tag=OUR_TAGS)
    """The wall time in milliseconds at which the credential of a join file expires; 0 for every
    other credential."""


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    """The credentials of the requested users."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


class ScramCredentialDeletion(Struct):
    """A credential that will be deleted."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """A credential that will be written. Its salted password is enough to log in, so it must stay
    secret.
    """

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()
    enrolment_ms: int = int64(tag=OUR_TAGS)
    """The milliseconds for which the credential of a join file is valid; 0 for every other
    credential."""


class AlterUserScramCredentialsRequest(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    """Delete and write credentials. The request can name each user only once."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)
    login_key: bytes = bytes_(tag=OUR_TAGS)
    """The stored key of the credential with which the client has logged in. The broker that
    receives the request sets it, whatever the client sends."""


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class AlterUserScramCredentialsResponse(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    """The results by user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)

"""Lists the users of a cluster, and changes their SCRAM credentials (KIP-554).

The salted password is derived here, so the password itself never leaves this process.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.errors import ErrorCode
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from protocol.security.scram import ITERATIONS_DEFAULT, SALT_BYTES, Mechanism, salted_password

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


async def describe_users(
    cluster: "Cluster", names: Collection[str] = (), *, timeout_ms: int | None = None
) -> dict[str, Mapping[Mechanism, int]]:
    """Return the iterations of each credential by user: of these users, or of all.

    A user that does not exist is missing in the result. Raises ApiError for other refusals.
    """
    described = await _describe(cluster, names, timeout_ms)
    return {
        user: {Mechanism(one.mechanism): one.iterations for one in infos}
        for user, infos in described.items()
    }


async def describe_enrolments(
    cluster: "Cluster", names: Collection[str] = (), *, timeout_ms: int | None = None
) -> dict[str, Mapping[Mechanism, int]]:
    """Return when the credentials of users expire, by user and mechanism; of all users without
    `names`. It is the wall time in milliseconds for the credential of a join file, and 0 for every
    other credential.

    A user that does not exist is missing in the result. Raises ApiError for other refusals.
    """
    described = await _describe(cluster, names, timeout_ms)
    return {
        user: {Mechanism(one.mechanism): one.enrolment_ends_ms for one in infos}
        for user, infos in described.items()
    }


async def _describe(
    cluster: "Cluster", names: Collection[str], timeout_ms: int | None
) -> dict[str, list[CredentialInfo]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])

    async def attempt(left_ms: int) -> dict[str, list[CredentialInfo]]:
        response: DescribeUserScramCredentialsResponse = await cluster.request(
            None, request, timeout_ms=left_ms
        )
        raise_for(response.error_code, response.error_message)
        found: dict[str, list[CredentialInfo]] = {}
        for result in response.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise_for(result.error_code, result.error_message)
            found[result.user] = result.credential_infos
        return found

    return await cluster.repeat(attempt, timeout_ms)


def credential_upsertion(
    user: str,
    password: str,
    mechanism: Mechanism,
    *,
    iterations: int = ITERATIONS_DEFAULT,
    enrolment_ms: int = 0,
) -> ScramCredentialUpsertion:
    """Return the change that gives a user a password. `enrolment_ms` is how many milliseconds the
    credential of a join file is valid, and 0 for every other credential."""
    salt = os.urandom(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(password, salt, iterations, mechanism.digest),
        enrolment_ms=enrolment_ms,
    )


async def set_password(
    cluster: "Cluster",
    user: str,
    password: str,
    mechanism: Mechanism,
    *,
    iterations: int = ITERATIONS_DEFAULT,
    enrolment_ms: int = 0,
    timeout_ms: int | None = None,
) -> None:
    """Write a user's credential for one mechanism, as `credential_upsertion` says. Raises
    ApiError."""
    upsertion = credential_upsertion(
        user, password, mechanism, iterations=iterations, enrolment_ms=enrolment_ms
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    await _alter(cluster, request, timeout_ms)


async def remove_credential(
    cluster: "Cluster", user: str, mechanism: Mechanism, *, timeout_ms: int | None = None
) -> None:
    """Delete a user's credential for one mechanism. Raises ApiError, also if there is none."""
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
    await _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]), timeout_ms)


async def _alter(
    cluster: "Cluster", request: AlterUserScramCredentialsRequest, timeout_ms: int | None
) -> None:
    async def attempt(left_ms: int) -> None:
        response: AlterUserScramCredentialsResponse = await cluster.request(
            None, request, timeout_ms=left_ms
        )
        for result in response.results:
            raise_for(result.error_code, result.error_message)

    await cluster.repeat(attempt, timeout_ms)

"""Connects a host to the brokers of a mill over TLS, and logs in with one of its secrets."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from appliance.output import CommandError, Exit
from protocol.client.connection import Connection
from protocol.client.errors import BrokerUnreachable, ClientError, ConnectionLost, EntryRefused
from protocol.client.login import ClientLogin, LoginRefused, LoginSettings
from protocol.client.tls import TlsFileError, TlsSettings, client_context
from protocol.client.user_admin import credential_upsertion
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.security.scram import Mechanism

CLIENT_ID = "millrace-join"
TIMEOUT_MS = 10_000
LOGINS_MAX = 10
"""The most logins at one broker that refuses the secret which another broker has accepted."""
LOGIN_EVERY_S = 0.5
WAY_REMEDY = (
    "; check that the mill runs and is open (`./millrace status` there), that its name leads to it"
    " from here, and that no firewall closes the port"
)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MillTarget:
    """The listeners of a mill, and the user of this host."""

    addresses: tuple[Address, ...]
    ca: str | None
    """The file with the CA; None: the CAs of this machine."""
    user: str
    mechanism: Mechanism


@dataclass(frozen=True, slots=True)
class UnreachableBroker:
    """A broker that this host cannot reach."""

    node_id: int
    address: str
    reason: str


class SecretRefused(Exception):
    """All brokers that answer refuse a secret."""


@asynccontextmanager
async def entered(target: MillTarget, secret: str) -> AsyncIterator[Connection]:
    """Log in at the first broker that accepts the secret.

    A broker can refuse a new password because it does not know it yet, so the others are tried too.
    Raises SecretRefused if at least one broker answers and none accepts, and CommandError if none
    answers.
    """
    refusal: LoginRefused | None = None
    reasons: list[str] = []
    remedy = ""
    for address in target.addresses:
        try:
            connection = await _open(target, address, secret)
        except LoginRefused as error:
            refusal = error
        except BrokerUnreachable as error:
            reasons.append(str(error))
            # The text of an EntryRefused says what to do.
            if not isinstance(error, EntryRefused):
                remedy = WAY_REMEDY
        else:
            try:
                yield connection
            finally:
                connection.close()
            return
    if refusal is not None:
        raise SecretRefused(str(refusal)) from refusal
    raise CommandError(
        f"no broker of the mill can be reached from this host: {'; '.join(reasons)}{remedy}",
        Exit.UNREACHABLE,
    )


async def _open(target: MillTarget, address: Address, secret: str) -> Connection:
    try:
        tls = client_context(TlsSettings(ca=target.ca))
    except TlsFileError as error:
        raise CommandError(str(error), Exit.CONDITION) from error
    login = ClientLogin(LoginSettings(target.user, secret, target.mechanism), random.Random())
    host, port = address
    return await Connection.open(
        host, port, client_id=CLIENT_ID, timeout_ms=TIMEOUT_MS, tls=tls, login=login
    )


async def is_accepted(target: MillTarget, secret: str) -> bool:
    """Return True if a broker accepts the secret. Raises CommandError if no broker answers."""
    try:
        async with entered(target, secret):
            return True
    except SecretRefused:
        return False


async def replace_secret(target: MillTarget, secret: str, password: str) -> None:
    """Replace the secret of this host's user by a password.

    The number of iterations is the default, because brokers ask unknown users for it too. With
    another number, a client without a login could find out which hosts have joined.

    When this returns, it can be unknown whether the brokers have replaced it, because they end the
    connection with the change. The caller tries to log in with the password. Raises CommandError if
    the brokers refuse the change for another reason than a secret that was replaced in the
    meantime.
    """
    change = await asyncio.to_thread(
        credential_upsertion,
        target.user,
        password,
        target.mechanism,
    )
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    try:
        async with entered(target, secret) as connection:
            answer: AlterUserScramCredentialsResponse = await connection.request(
                request, timeout_ms=TIMEOUT_MS
            )
    except (ConnectionLost, SecretRefused):
        return
    except ClientError as error:
        raise CommandError(f"the password was not changed: {error}") from error
    for result in answer.results:
        code = ErrorCode.of(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise CommandError(
                f"the password was not changed: {result.error_message or code.name};"
                " type the same command again"
            )


@dataclass(frozen=True, slots=True)
class MillSeen:
    """The mill as this host sees it."""

    cluster_id: str
    broker_count: int
    unreachable: Sequence[UnreachableBroker]


async def look(target: MillTarget, secret: str) -> MillSeen:
    """Ask a broker for the addresses of all brokers, and log in at each of them. Raises
    SecretRefused and CommandError."""
    async with entered(target, secret) as connection:
        try:
            metadata: MetadataResponse = await connection.request(
                MetadataRequest(topics=[]), timeout_ms=TIMEOUT_MS
            )
        except (ClientError, ApiError) as error:
            raise CommandError(f"{connection.peer}: {error}", Exit.UNREACHABLE) from error
    advertised = {one.node_id: (one.host, one.port) for one in metadata.brokers}
    unreachable = await dial_all(target, secret, advertised)
    return MillSeen(metadata.cluster_id or "", len(advertised), unreachable)


async def dial_all(
    target: MillTarget, secret: str, advertised: Mapping[int, Address]
) -> list[UnreachableBroker]:
    """Log in at each broker under the address that it advertises. Return those that this host
    cannot reach."""
    unreachable = []
    for node_id, (host, port) in sorted(advertised.items()):
        reason = await _fault_of(target, (host, port), secret)
        if reason is not None:
            unreachable.append(UnreachableBroker(node_id, f"{host}:{port}", reason))
    return unreachable


async def _fault_of(target: MillTarget, address: Address, secret: str) -> str | None:
    """Return why this host cannot log in at a broker; None if it can.

    A broker can learn of a new password later than the others, so a refused login is repeated.
    """
    reason = None
    for attempt in range(LOGINS_MAX):
        if attempt:
            await asyncio.sleep(LOGIN_EVERY_S)
        try:
            (await _open(target, address, secret)).close()
        except LoginRefused as error:
            reason = str(error)
        except BrokerUnreachable as error:
            return str(error)
        else:
            return None
    return reason

"""Manages the users that log in to the brokers: reads, checks and writes their passwords."""

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path

from appliance.kafka.acls import super_users
from appliance.output import CommandError, Exit
from protocol.client.acl_admin import delete_acls
from protocol.client.cluster import Cluster
from protocol.client.user_admin import describe_users, remove_credential, set_password
from protocol.errors import ApiError, ErrorCode
from protocol.security.acl import USER_PREFIX, AclFilter
from protocol.security.scram import ITERATIONS_DEFAULT, Mechanism

PASSWORD_LENGTH_MIN = 12
PASSWORD_BYTES_MAX = 1_024

FROM_STDIN = "-"


def read_password(user: str, file: str | None) -> str:
    """Return a password from a file, from standard input (`-`), or from a prompt.

    The password is never an argument, because every account of the machine can read the arguments
    of a command. Raises CommandError.
    """
    password = _prompted(user) if file is None else _of_file(file)
    check_password(user, password)
    return password


def _prompted(user: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(
            "no password was given: without a terminal use --password-file FILE,"
            " or --password-file - for standard input",
            Exit.USAGE,
        )
    password = getpass.getpass(f"password of {user}: ")
    if getpass.getpass("again: ") != password:
        raise CommandError("the two passwords differ; nothing was changed", Exit.USAGE)
    return password


def _of_file(file: str) -> str:
    """Return the content of a file, or the first line of standard input."""
    shown = "standard input" if file == FROM_STDIN else file
    try:
        if file == FROM_STDIN:
            text = sys.stdin.readline(PASSWORD_BYTES_MAX + 2)
        else:
            text = Path(file).read_text(encoding="utf-8")
        # In some locales Python decodes other bytes of standard input to surrogates, which cannot
        # be encoded.
        text.encode()
    except UnicodeError:
        # Do not chain the error, because it contains the bytes of the password.
        raise CommandError(f"{shown}: found no UTF-8, expected a text file", Exit.USAGE) from None
    except OSError as error:
        raise CommandError(f"{shown} cannot be read: {error.strerror}", Exit.USAGE) from error
    return text.removesuffix("\n")


def check_password(user: str, password: str) -> None:
    """Raise CommandError if a password is easy to guess, or cannot be typed in a client."""
    if len(password) < PASSWORD_LENGTH_MIN:
        fault = f"has {len(password)} characters, expected at least {PASSWORD_LENGTH_MIN}"
    elif not password.isprintable():
        fault = "has control characters, which clients cannot be configured with"
    elif len(password.encode()) > PASSWORD_BYTES_MAX:
        fault = f"is longer than {PASSWORD_BYTES_MAX} bytes"
    elif password.lower() == user.lower():
        fault = "equals the name of the user"
    else:
        return
    raise CommandError(f"the password {fault}; nothing was changed", Exit.USAGE)


async def add(cluster: Cluster, user: str, password: str) -> None:
    """Create a user with a credential for each mechanism. Raises CommandError."""
    if await describe_users(cluster, [user]):
        raise CommandError(
            f"user {user} already exists; `millrace user password {user}` changes the password"
        )
    await _write(cluster, user, password)


async def change(cluster: Cluster, user: str, password: str) -> None:
    """Replace the password of a user, which ends the user's connections. Raises CommandError."""
    await existing(cluster, user)
    await _write(cluster, user, password)


async def is_last_super_user(cluster: Cluster, user: str) -> bool:
    """Return True if the user is the only super user that can log in.

    False as well if the settings of the brokers may not be read.
    """
    try:
        supers = await super_users(cluster)
    except ApiError:
        return False
    return user in supers and not supers & (await describe_users(cluster)).keys() - {user}


async def remove(cluster: Cluster, user: str) -> None:
    """Remove all ACLs and credentials of a user, which ends the user's connections.

    The ACLs go first, because a later user of the same name would inherit them. Raises
    CommandError.
    """
    credentials = await existing(cluster, user)
    await delete_acls(cluster, [AclFilter(principal=USER_PREFIX + user)])
    for mechanism in credentials:
        try:
            await remove_credential(cluster, user, mechanism)
        except ApiError as error:
            # An earlier attempt has removed the credential, but its answer was lost.
            if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise


async def existing(cluster: Cluster, user: str) -> Mapping[Mechanism, int]:
    """Return the iterations of a user's credentials. Raises CommandError if there are none."""
    found = await describe_users(cluster, [user])
    if user not in found:
        raise CommandError(f"there is no user {user}", Exit.NOT_FOUND)
    return found[user]


async def write_credential(
    cluster: Cluster,
    user: str,
    password: str,
    mechanism: Mechanism,
    iterations: int = ITERATIONS_DEFAULT,
) -> None:
    """Write one credential. Raises CommandError with the broker's reason."""
    try:
        await set_password(cluster, user, password, mechanism, iterations=iterations)
    except ApiError as error:
        raise CommandError(
            f"the credential of user {user} was not changed: {error.message}"
        ) from error


async def _write(cluster: Cluster, user: str, password: str) -> None:
    for mechanism in Mechanism:
        await write_credential(cluster, user, password, mechanism)

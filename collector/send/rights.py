"""Name the right that a collector's user lacks, and the command that gives it.

This module is pure. A collector on another host has few rights, and may not create topics. So the
message about a refusal names the command that an administrator of the mill must run.
"""

from protocol.client.errors import ClientError
from protocol.errors import ApiError, ErrorCode

DENIALS = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)


class NotAllowed(ClientError):
    """The brokers refused a request because the collector's user lacks a right.

    The text names the topic or transactional id, and the command.
    """


def transactional_id_of(instance: str) -> str:
    """Return the transactional id under which the collector of this name writes."""
    return f"millrace-collector-{instance}"


def denial_of(error: BaseException | None) -> ErrorCode | None:
    """Return the code of a denial that an error or one of its causes has; None without denial."""
    while error is not None:
        if isinstance(error, ApiError) and error.code in DENIALS:
            return error.code
        error = error.__cause__
    return None


def topic_denied(user: str | None, topic: str, operations: str) -> str:
    """Say that a topic is not accessible. `operations` are as in the command."""
    return (
        f"{_named(user)} may not {operations.replace(',', ' and ')} topic {topic}: on a host of the"
        f" mill, run `millrace acl allow {user or 'USER'} {operations} --topic {topic}`"
    )


def creation_denied(user: str | None, topic: str, partitions: int | None) -> str:
    """Say that a topic is missing and that the collector may not create it."""
    count = "" if partitions is None else f" --partitions {partitions}"
    return (
        f"topic {topic} does not exist, and {_named(user)} may not create it: on a host of the"
        f" mill, run `millrace topic create {topic}{count}`"
    )


def transactions_denied(user: str | None, transactional_id: str) -> str:
    """Say that the collector's transactional id is not accessible."""
    command = f"millrace acl allow {user or 'USER'} write --transactional-id {transactional_id}"
    return (
        f"{_named(user)} may not use the transactional id {transactional_id}: on a host of the"
        f" mill, run `{command}`"
    )


def _named(user: str | None) -> str:
    return "the user of this collector" if user is None else f"user {user}"

"""Topic names: the valid names, and the names that collide.

This module is pure.
"""

from __future__ import annotations

import re

from protocol.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX = 249

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str | None) -> str:
    """Return the name if it is valid, else raise INVALID_TOPIC_EXCEPTION.

    A valid name can be a folder's name.
    """
    if not name:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic's name must not be empty")
    if name in (".", ".."):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic's name cannot be '.' or '..'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"a topic's name has at most {TOPIC_NAME_LENGTH_MAX} characters, not {len(name)}",
        )
    if not _TOPIC_NAME.match(name):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a topic's name has only ASCII letters, digits, '.', '_' and '-'",
        )
    return name


def normalised(name: str) -> str:
    """Return a topic's name in the form for metric names, in which dots become underscores."""
    return name.replace(".", "_")

"""Topic names: which are valid, and which collide.

This module is pure.
"""

from __future__ import annotations

import re

from protocol.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX = 249

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def check_topic_name(name: str | None) -> str:
    """Return the name if it can be a folder's name, else raise INVALID_TOPIC_EXCEPTION."""
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
    """Return the topic's name as in metric names, where a dot equals an underscore."""
    return name.replace(".", "_")

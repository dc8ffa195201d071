"""The base class of errors that stop a command, each with a sentence for the user.

This module imports nothing, so that the command line can catch these errors without loading other
packages.
"""

NOT_RUNNING = "the mill is not running; `make up` starts it"


def reason_of(error: BaseException) -> str:
    """Return the system's message without its number and without Python's class names."""
    inner = getattr(error, "reason", None) or error.__cause__ or error
    return getattr(inner, "strerror", None) or str(error)


class Failure(Exception):
    """Raised when a command cannot continue. The text says why, and what to do."""

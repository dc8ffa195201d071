"""The base class of errors that stop a command, each with a sentence for the user.

Ground floor: it imports nothing, so that the command line can name it without loading a room.
"""

NOT_RUNNING = "the mill is not running; `make up` starts it"


def reason_of(error: BaseException) -> str:
    """Return the system's message without its number and without Python's class names."""
    inner = getattr(error, "reason", None) or error.__cause__ or error
    return getattr(inner, "strerror", None) or str(error)


class Failure(Exception):
    """Something that the mill depends on is not right; the text says what, and what helps."""

"""The root of what may keep a command from its work, each text a sentence for the user.

Ground of the room: imports nothing, so that the command line can name it without loading a room.
"""

NOT_RUNNING = "the mill is not running; `make up` starts it"


def reason_of(error: BaseException) -> str:
    """What the system said, without its number and without the names of Python's wrappers."""
    inner = getattr(error, "reason", None) or error.__cause__ or error
    return getattr(inner, "strerror", None) or str(error)


class Failure(Exception):
    """Something the mill depends on is not as it must be; the text says what, and what helps."""

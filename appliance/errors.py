"""The root of what may keep a command from its work, each text a sentence for the user.

Ground of the room: imports nothing, so that the command line can name it without loading a room.
"""


class Failure(Exception):
    """Something the mill depends on is not as it must be; the text says what, and what helps."""

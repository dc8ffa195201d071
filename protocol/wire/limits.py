"""The limits of what one process reads: counts in messages, and sizes of decompressed batches.

There is one object per process. A process sets it once, before its first message, because compiled
readers contain the counts. Clients keep the defaults.
"""


class WireLimits:
    """The limits of reading. The error that a limit causes names it."""

    __slots__ = ("decompressed_bytes_max", "element_count_max", "number_count_max", "tag_count_max")

    def __init__(self) -> None:
        self.tag_count_max = 64
        """The most tagged fields in one struct, known and unknown ones together."""

        self.element_count_max = 250_000
        """The most structs, strings and ids in all arrays of a message together.

        An empty struct takes three bytes on the wire but a hundred in memory, so a limit of bytes
        is not enough.
        """

        self.number_count_max = 250_000
        """The most numbers in all arrays of a message together, because each can
        name a partition.
        """

        self.decompressed_bytes_max = 20 << 20
        """The largest decompressed batch if the caller gives no limit."""


LIMITS = WireLimits()

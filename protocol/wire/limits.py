"""What one process is willing to read at most: counts in messages, and the size of opened batches.

Floor: wire. Data only, one object for the process. A process sets it once, before it reads its
first message, for readers take the counts in when they are compiled; clients leave it as it is.
"""


class WireLimits:
    """The limits; each is named in the error that it leads to."""

    __slots__ = ("decompressed_bytes_max", "element_count_max", "number_count_max", "tag_count_max")

    def __init__(self) -> None:
        self.tag_count_max = 64
        """Tagged fields in one struct, known and unknown together."""

        self.element_count_max = 250_000
        """Structs, strings and ids in all arrays of a message together.

        An empty struct takes three bytes on the wire and a hundred here, so bytes alone are no
        limit.
        """

        self.number_count_max = 250_000
        """Numbers in all arrays of a message together: each may name a partition."""

        self.decompressed_bytes_max = 20 << 20
        """What a batch may expand to where whoever opens it names no limit."""


LIMITS = WireLimits()

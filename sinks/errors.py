"""What can go wrong between a batch and its sinks.

SinkError
├── Fenced               a newer driver writes; this one must end and stay down
├── LedgerMismatch       the batch does not continue what was counted, or the server was restored
│                        from an older copy; resume from the ledger
├── DefinitionChanged    a metric's meaning changed under its old name
├── UnknownMetric        nothing is stored under this name
├── StillCounted         a metric that is to be forgotten is still counted
├── RangeMoved           a recount's offsets are not the ones that are missing
├── SchemaTooNew         a newer version of the program wrote the database
└── SinkUnavailable      a server is away; the same batch may be tried again
"""


class SinkError(Exception):
    """Anything the sinks refuse or cannot do."""


class Fenced(SinkError):
    """Another driver raised the epoch, or another query owns the writer row."""


class LedgerMismatch(SinkError):
    """A batch's offsets neither continue the ledger nor lie wholly before its end.

    Also raised when the writer row stands before this driver's epoch: nobody newer writes, the
    truth was restored from an older copy or emptied.
    """


class DefinitionChanged(SinkError):
    """Metrics whose stored definition differs; the text names them and the way out."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        listed = ", ".join(names)
        super().__init__(
            f"the meaning of {listed} changed, and what is counted under that name was counted "
            "otherwise: give the metric a new name; or take it out of the file, remove what is "
            f"counted with `./millrace stream forget {names[0]}`, put it back, and count it over "
            f"the lines that went by with `./millrace stream recount {names[0]}`"
        )


class UnknownMetric(SinkError):
    """No metric of this name is stored; the text names those that are."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known) or "none yet"
        super().__init__(f"no metric {name!r} is stored; there are {listed}")


class StillCounted(SinkError):
    """The metric is among those that the stream counts."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is still counted: take it out of the configuration first, and let the stream "
            "run with that"
        )


class RangeMoved(SinkError):
    """What was counted again does not end where the metric begins: look again what is missing."""

    def __init__(self, metric: str, counted: object) -> None:
        super().__init__(f"{metric} does not begin at the end of {counted}")


class SchemaTooNew(SinkError):
    """The tables are of a version that this program does not know."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database is of version {found} and this program writes version {known}: "
            "start the newer program again"
        )


class SinkUnavailable(SinkError):
    """A sink did not answer within the given patience; nothing is half done."""

    def __init__(self, sink: str, reason: str) -> None:
        self.sink = sink
        self.reason = reason
        super().__init__(f"{sink} is away: {reason}")

"""The errors between a batch and its sinks.

SinkError
├── FencedWriter         a newer driver writes; this driver must end and not restart
├── LedgerMismatch       the batch does not continue the counted offsets, or the server was restored
│                        from an older copy; resume from the ledger
├── DefinitionChanged    a metric has another definition than the stored one of this name
├── UnknownMetric        nothing is stored under this name
├── StillCounted         a metric to forget is still counted
├── RangeMoved           the offsets of a recount are not the missing ones
├── SchemaTooNew         a newer version of the program wrote the database
├── SchemaTooOld         a version from before the first release wrote the database
└── SinkUnavailable      a server does not answer; the same batch can be tried again
"""


class SinkError(Exception):
    """The base class of all errors of the sinks."""


class FencedWriter(SinkError):
    """Another driver has raised the epoch, or another query owns the writer row."""


class LedgerMismatch(SinkError):
    """A batch's offsets do not continue the ledger, and are not all counted already.

    This is also raised if the writer row has an older epoch than this driver. Then no newer driver
    has written, but the truth was restored from an older copy, or emptied.
    """


class DefinitionChanged(SinkError):
    """Metrics have another definition than stored; the text names them and says what to do."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        listed = ", ".join(names)
        super().__init__(
            f"the definition of {listed} changed, but the stored counts follow the old one: "
            "give the metric a new name; or take it out of the file, remove its counts "
            f"with `./millrace stream forget {names[0]}`, put it back, and count it over "
            f"the earlier lines with `./millrace stream recount {names[0]}`"
        )


class UnknownMetric(SinkError):
    """No metric with this name is stored. The text lists the stored metrics."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known) or "none yet"
        super().__init__(f"no metric {name!r} is stored; the stored metrics are {listed}")


class StillCounted(SinkError):
    """A metric that must be forgotten is still counted by the stream."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the stream still counts {name}: take the metric out of the configuration file first, "
            "and wait until the running stream uses the changed file"
        )


class RangeMoved(SinkError):
    """The recount ended at another offset than the one at which live counting starts.

    The caller must read the missing ranges again.
    """

    def __init__(self, metric: str, counted: object) -> None:
        super().__init__(f"the stored counts of {metric} do not begin at the end of {counted}")


class SchemaTooNew(SinkError):
    """A newer version of the program has created or changed the tables."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the tables in MySQL or the keys in Redis have version {found}, but this version of "
            f"millrace writes version {known}: start the newer version of millrace again"
        )


class SchemaTooOld(SinkError):
    """A version from before the first release wrote the database, and no code reads its counts."""

    def __init__(self, sink: str, found: str, known: int) -> None:
        name, other = {
            "mysql": ("MySQL", "database under sinks.mysql.database"),
            "redis": ("Redis", "server under sinks.redis"),
        }[sink]
        super().__init__(
            f"{name} has counts of {found}, from before the first release; this program reads "
            f"version {known} and has changed nothing. Stop the mill, then move data/{sink} away. "
            f"If the server is not the mill's own, name another {other} instead. The started mill "
            "counts again every line that the topics hold"
        )


class SinkUnavailable(SinkError):
    """A sink did not answer in time.

    The work can be repeated, because it is done completely or not at all.
    """

    def __init__(self, sink: str, reason: str) -> None:
        self.sink = sink
        self.reason = reason
        super().__init__(f"{sink} does not answer: {reason}")

"""Decides why counting failed (data, memory, a server, the JVM) from Java's chain of causes.

`origin_of` and `words_of` are pure: they use the names and messages of exceptions. Only `causes_of`
calls the JVM, to read these names and messages.

Both kinds of wrong decision do harm. If the data caused a failure and something else is taken for
the cause, the stream never gets past this batch. If something else caused it (a broker that is
away, a full disk) and the data is taken for the cause, good lines are set aside. So only known
causes are decided at once. For all others the origin is DOUBT, and the same batch is tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from protocol.log import escape

WORDS_MAX = 300

# The most causes that are read from a chain, because a chain can be circular.
_CAUSES_MAX = 20
_MESSAGE_MAX = 2_000


class Origin(StrEnum):
    """The origin of a failure.

    DATA: the lines. MEMORY: too little heap. ELSEWHERE: a server or the machine. JVM: it has ended.
    DOUBT: unknown.
    """

    DATA = "data"
    MEMORY = "memory"
    DOUBT = "doubt"
    ELSEWHERE = "elsewhere"
    JVM = "jvm"


@dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a chain: the full name of its class, and the beginning of its message."""

    name: str
    message: str

    @property
    def short_name(self) -> str:
        """The name of the class without its package."""
        return self.name.rpartition(".")[2].rpartition("$")[2]


_MEMORY = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")
# Words in the message of an OutOfMemoryError that is not about the heap. Counting smaller parts
# does not help against it, because they need as many threads, classes and direct buffers.
_NOT_HEAP = ("thread", "metaspace", "class space", "direct buffer")

_DATA = frozenset(
    {
        "java.lang.ArithmeticException",
        "java.lang.ArrayIndexOutOfBoundsException",
        "java.lang.ClassCastException",
        "java.lang.IllegalArgumentException",
        "java.lang.IndexOutOfBoundsException",
        "java.lang.NegativeArraySizeException",
        "java.lang.NumberFormatException",
        "java.lang.StackOverflowError",
        "java.lang.StringIndexOutOfBoundsException",
        "java.time.DateTimeException",
        "java.time.format.DateTimeParseException",
        "java.time.zone.ZoneRulesException",
        "java.util.regex.PatternSyntaxException",
        "org.apache.spark.SparkArithmeticException",
        "org.apache.spark.SparkArrayIndexOutOfBoundsException",
        "org.apache.spark.SparkDateTimeException",
        "org.apache.spark.SparkIllegalArgumentException",
        "org.apache.spark.SparkNumberFormatException",
        "org.apache.spark.SparkRuntimeException",
    }
)

_ELSEWHERE = (
    "org.apache.kafka.",
    "org.apache.spark.sql.kafka010.",
    "org.apache.spark.shuffle.",
    "org.apache.spark.storage.",
    "org.apache.spark.rpc.",
    "org.apache.spark.TaskKilledException",
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException",
    "org.apache.spark.sql.catalyst.parser.",
    "java.io.EOFException",
    "java.io.FileNotFoundException",
    "java.io.IOException",
    "java.io.InterruptedIOException",
    "java.net.BindException",
    "java.net.ConnectException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
    "java.nio.channels.",
    "java.nio.file.",
    "java.util.concurrent.CancellationException",
    "java.util.concurrent.RejectedExecutionException",
    "java.util.concurrent.TimeoutException",
    "java.lang.ClassNotFoundException",
    "java.lang.ExceptionInInitializerError",
    "java.lang.IncompatibleClassChangeError",
    "java.lang.InterruptedException",
    "java.lang.NoClassDefFoundError",
    "java.lang.NoSuchMethodError",
    "java.lang.UnsatisfiedLinkError",
)
# Words by which to recognise failures that Spark reports with a plain SparkException or
# IllegalStateException.
_ELSEWHERE_WORDS = ("cancelled", "SparkContext", "Exception while awaiting", "ExecutorLostFailure")


def origin_of(causes: Sequence[Cause]) -> Origin:
    """Return the origin of a failure; `causes` has the outermost exception first."""
    if any(cause.name.startswith(_ELSEWHERE) for cause in causes):
        return Origin.ELSEWHERE
    for cause in causes:
        if cause.name in _MEMORY:
            is_heap = not any(word in cause.message.lower() for word in _NOT_HEAP)
            return Origin.MEMORY if is_heap else Origin.ELSEWHERE
    if any(cause.name in _DATA for cause in causes):
        return Origin.DATA
    if any(word in cause.message for cause in causes for word in _ELSEWHERE_WORDS):
        return Origin.ELSEWHERE
    return Origin.DOUBT


def is_java_error(causes: Sequence[Cause]) -> bool:
    """Tell whether one of the causes is a Java Error, which can end the JVM."""
    return any(cause.name.startswith("java.") and cause.name.endswith("Error") for cause in causes)


def words_of(causes: Sequence[Cause]) -> str:
    """Describe the innermost cause: its class, and the first line of its message, shortened."""
    last = causes[-1]
    head = (last.message.strip().splitlines() or [""])[0]
    return escape(f"{last.short_name}: {head}" if head else last.short_name)[:WORDS_MAX]


def causes_of(error: BaseException) -> list[Cause]:
    """Return the chain of causes of an exception, the outermost first; it is never empty.

    Raises Py4JError or OSError if the JVM that holds the chain is gone.
    """
    java = getattr(error, "java_exception", None)
    if isinstance(error, CapturedException):
        java = error._origin
    found: list[Cause] = []
    while java is not None and len(found) < _CAUSES_MAX:
        message = java.getMessage()
        found.append(Cause(str(java.getClass().getName()), str(message or "")[:_MESSAGE_MAX]))
        java = java.getCause()
    return found or [_own_cause(error)]


def judge(error: Exception) -> tuple[Origin, list[Cause]]:
    """Return the origin of an exception that counting has raised, and its chain of causes."""
    # Only a Py4JJavaError is an answer of the JVM. Any other error of Py4J means that the JVM did
    # not answer.
    is_answered = isinstance(error, Py4JJavaError)
    if isinstance(error, Py4JError | OSError) and not is_answered:
        return Origin.JVM, [_own_cause(error)]
    try:
        causes = causes_of(error)
    except (Py4JError, OSError) as gone:
        return Origin.JVM, [_own_cause(gone)]
    if isinstance(error, MemoryError):
        return Origin.MEMORY, causes
    return origin_of(causes), causes


def error_words(error: BaseException) -> str:
    """Describe an exception in words, by its innermost Java cause if the JVM can tell that."""
    try:
        return words_of(causes_of(error))
    except (Py4JError, OSError):
        return words_of([_own_cause(error)])


def _own_cause(error: BaseException) -> Cause:
    own = type(error)
    return Cause(f"{own.__module__}.{own.__qualname__}", str(error)[:_MESSAGE_MAX])

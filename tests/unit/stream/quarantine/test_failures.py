"""The cause of a failure, found in chains of exceptions as Spark 4.2 raises them."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from stream.quarantine.failures import (
    WORDS_MAX,
    Cause,
    Origin,
    error_words,
    is_java_error,
    judge,
    origin_of,
    words_of,
)

ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent failure:"
    " Lost task 0.0 in stage 7.0 (TID 14) (192.0.2.2 executor driver): {}\n\tat java.base/x"
)


def aborted(name: str, message: str = "") -> list[Cause]:
    """Return the chain of causes that the driver sees for a task's exception."""
    return [
        Cause("org.apache.spark.SparkException", ABORTED.format(name)),
        Cause(name, message),
    ]


DATA = [
    aborted("java.lang.ArithmeticException", "BigInteger would overflow supported range"),
    aborted("java.lang.StackOverflowError"),
    [
        Cause("org.apache.spark.SparkIllegalArgumentException", "[CANNOT_DECODE_URL] … %zz"),
        Cause("java.lang.IllegalArgumentException", "URLDecoder: Illegal hex characters"),
    ],
    [Cause("org.apache.spark.SparkRuntimeException", "[INVALID_INDEX_OF_ZERO] The index 0 is")],
    [
        Cause(
            "org.apache.spark.SparkDateTimeException", "[INVALID_TIMEZONE] The timezone: no/zone"
        ),
        Cause("java.time.zone.ZoneRulesException", "Unknown time-zone ID: no/zone"),
    ],
    [
        Cause("org.apache.spark.SparkException", "[MALFORMED_RECORD_IN_PARSING] Malformed\nParse"),
        Cause("org.apache.spark.SparkRuntimeException", "[MALFORMED_CSV_RECORD] Malformed CSV"),
    ],
]
MEMORY = [
    aborted("java.lang.OutOfMemoryError", "Java heap space"),
    aborted("java.lang.OutOfMemoryError", "Requested array size exceeds VM limit"),
    aborted("org.apache.spark.memory.SparkOutOfMemoryError", "[UNABLE_TO_ACQUIRE_MEMORY] Unable"),
]
ELSEWHERE = [
    aborted("org.apache.kafka.common.errors.TimeoutException", "Timeout of 10000ms expired"),
    aborted("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "out of range"),
    aborted("org.apache.spark.sql.kafka010.KafkaIllegalStateException", "[KAFKA_DATA_LOSS.X] …"),
    [
        *aborted("java.util.concurrent.TimeoutException", "Cannot fetch record for offset 5 in"),
    ],
    aborted("java.io.IOException", "No space left on device"),
    aborted("java.nio.file.NoSuchFileException", "/data/scratch/blockmgr-1/0c"),
    aborted("java.lang.NoClassDefFoundError", "Could not initialize class org.xerial.snappy"),
    aborted("java.lang.OutOfMemoryError", "unable to create native thread: possibly out of"),
    aborted("java.lang.OutOfMemoryError", "Metaspace"),
    [Cause("org.apache.spark.SparkException", "Job 9 cancelled part of cancelled job group x")],
    [
        Cause(
            "org.apache.spark.SparkException", "Job 9 cancelled because SparkContext was shut down"
        )
    ],
    [Cause("org.apache.spark.sql.catalyst.ExtendedAnalysisException", "[UNRESOLVED_COLUMN] A col")],
    # An exception about data must not hide the timeout of a broker that caused it.
    [
        *aborted("org.apache.spark.SparkRuntimeException", "x"),
        Cause("java.net.SocketTimeoutException", "Read timed out"),
    ],
]
DOUBT = [
    aborted("java.lang.IllegalStateException", "something else"),
    aborted("scala.MatchError", "null"),
    [Cause("org.apache.spark.SparkException", ABORTED.format("?"))],
    [Cause("builtins.KeyError", "'nothing'")],
]


@pytest.mark.parametrize("causes", DATA)
def test_of_the_data(causes: list[Cause]) -> None:
    assert origin_of(causes) is Origin.DATA


@pytest.mark.parametrize("causes", MEMORY)
def test_of_memory(causes: list[Cause]) -> None:
    assert origin_of(causes) is Origin.MEMORY


@pytest.mark.parametrize("causes", ELSEWHERE)
def test_from_elsewhere(causes: list[Cause]) -> None:
    assert origin_of(causes) is Origin.ELSEWHERE


@pytest.mark.parametrize("causes", DOUBT)
def test_in_doubt(causes: list[Cause]) -> None:
    assert origin_of(causes) is Origin.DOUBT


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o115.collectToPython"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_a_bridge_that_is_down_is_the_jvm_s_end(error: Exception) -> None:
    assert judge(error)[0] is Origin.JVM
    assert error_words(error).startswith(type(error).__name__)


def test_python_s_own_errors_are_in_doubt_but_for_memory() -> None:
    assert judge(ValueError("no number"))[0] is Origin.DOUBT
    assert judge(MemoryError())[0] is Origin.MEMORY


def test_errors_of_java_are_told_from_its_exceptions() -> None:
    assert is_java_error(aborted("java.lang.StackOverflowError"))
    assert not is_java_error(aborted("java.lang.ArithmeticException", "SomeError"))
    assert not is_java_error([Cause("builtins.MemoryError", "")])


def test_words_are_the_innermost_cause_s_first_line() -> None:
    causes = aborted("java.lang.ArithmeticException", "BigInteger would\n\tat java.base/x")
    assert words_of(causes) == "ArithmeticException: BigInteger would"
    assert words_of(aborted("java.lang.StackOverflowError")) == "StackOverflowError"
    assert error_words(ValueError("no number")) == "ValueError: no number"


def test_words_are_bounded_and_hold_no_control_codes() -> None:
    assert len(words_of(aborted("a.B$C", "," * 30_000))) == WORDS_MAX
    assert words_of(aborted("a.B$C", "\x1b[31m red")) == "C: \\x1b[31m red"

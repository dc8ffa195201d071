"""The JVM writes each record of stream.log on its own line, and no stack trace for a planned
end."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from appliance.machine.java import find_java
from stream.spark.session import LOGGING
from tests.harness.wait import wait_until

JARS = Path(pyspark.__file__).parent / "jars"
SPARK = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
LAST = "the last record"
TRACE_CHARS_MAX = 1_500
CUT = "..."


class Jvm:
    """A JVM whose Log4j is configured as in Spark's driver."""

    def __init__(self, log: Path) -> None:
        java = find_java()
        assert java is not None
        self.log = log
        classes = [*JARS.glob("log4j-*.jar"), *JARS.glob("py4j-*.jar")]
        with log.open("wb") as errors:
            port = launch_gateway(
                jarpath=str(next(JARS.glob("py4j-*.jar"))),
                classpath=":".join(map(str, classes)),
                javaopts=[f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"],
                die_on_exit=True,
                redirect_stderr=errors,
                java_path=str(java.home / "bin" / "java"),
            )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self.java = self.gateway.jvm

    def error(self, message: str, thrown: Any = None, logger: str = SPARK) -> None:
        self.java.org.apache.logging.log4j.LogManager.getLogger(logger).error(message, thrown)

    def thrown(self, message: str) -> Any:
        return self.java.java.lang.IllegalStateException(message)

    def lines(self) -> list[str]:
        """Return the lines of the log once the last record is written."""
        self.error(LAST)
        wait_until(lambda: LAST in self.log.read_text(), 20, "it is written")
        # The JVM can first print messages about options from the environment, so skip those.
        lines = self.log.read_text().splitlines()
        return lines[next(at for at, line in enumerate(lines) if " spark " in line) :]


@pytest.fixture
def jvm() -> Iterator[Jvm]:
    if find_java() is None:
        pytest.skip("Java is not installed; make test installs it")
    with tempfile.TemporaryDirectory() as folder:
        made = Jvm(Path(folder) / "stream.log")
        yield made
        made.gateway.shutdown()


@pytest.mark.parametrize("length", [10, TRACE_CHARS_MAX, 10 * TRACE_CHARS_MAX])
def test_a_record_begins_on_a_line_of_its_own(jvm: Jvm, length: int) -> None:
    """A truncated stack trace has no line end. The next record must still begin on a new line."""
    jvm.error("first", jvm.thrown("x" * length))
    jvm.error("second")
    lines = jvm.lines()
    records = [line for line in lines if " ERROR spark " in line]
    assert all(re.match(r"\d{4}-\d\d-\d\dT", record) for record in records)
    assert [line.partition("MicroBatchExecution ")[2] for line in records] == [
        "first",
        "second",
        LAST,
    ]
    assert lines[1].startswith("java.lang.IllegalStateException: xxx")
    assert len("\n".join(lines[1 : lines.index(records[1])])) <= TRACE_CHARS_MAX + len(CUT)
    assert all(line.strip() for line in lines)


def test_a_query_that_ends_is_told_by_the_stream_alone(jvm: Jvm) -> None:
    """A change of metrics ends the query with an exception. Spark would log it as an ERROR with a
    stack trace."""
    jvm.error("Query [id = 7c0f, runId = 1d2e] terminated with error", jvm.thrown("StopRequested"))
    jvm.error("something else")
    lines = jvm.lines()
    assert [line.partition("MicroBatchExecution ")[2] for line in lines] == ["something else", LAST]

"""Java programs with an unmodified kafka-clients from Maven, compiled in the test's own folder.

    clients = JavaClients(tmp_path, "3.9.2")
    clients.run("Records", broker.bootstrap, topic)

`version` may be one of Maven's version ranges, which stands for its newest release. The test is
skipped with the reason if Java, its compiler or Maven is missing. A warning that a client logs
fails the test.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

from tests.harness import ROOT
from tests.harness.maven import LOG4J_VERSION, maven_jars
from tests.harness.tools import LOG4J, complaints

SOURCES = ROOT / "tests" / "interop" / "java"
RUN_DEADLINE_S = 180.0

NEWEST = "[4.3.1,5)"
SPARKS = "3.9.2"


@cache
def client_jars(version: str) -> Path:
    """Return the folder with kafka-clients and its dependencies, downloaded by Maven once and
    kept."""
    wanted = {
        "org.apache.kafka:kafka-clients": version,
        "org.apache.logging.log4j:log4j-slf4j-impl": LOG4J_VERSION,
    }
    name = "newest-4" if version == NEWEST else version
    return maven_jars(
        f"kafka-clients-{name}", wanted, tools=("java", "javac"), what="a Java client"
    )


def client_version(wanted: str) -> str:
    """Return the release to which a range resolved."""
    (jar,) = client_jars(wanted).glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


class JavaClients:
    """The programs of `tests/interop/java` with one version of kafka-clients."""

    def __init__(self, folder: Path, version: str) -> None:
        self.jars = client_jars(version)
        self._classes = folder / "classes"
        self._classes.mkdir(parents=True, exist_ok=True)
        self._log4j = folder / "log4j2.properties"
        self._log4j.write_text(LOG4J)
        sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
        subprocess.run(
            ["javac", "-nowarn", "-d", str(self._classes), "-cp", f"{self.jars}/*", *sources],
            check=True,
            capture_output=True,
            timeout=RUN_DEADLINE_S,
        )

    def run(self, program: str, *arguments: str, provoked: str = "", given: str = "") -> str:
        """Return the program's output. Fail on a non-zero exit code, and on any logged warning.

        `provoked` is a pattern for warnings that the program causes on purpose. `given` is the
        program's standard input.
        """
        ended = subprocess.run(
            self.command(program, *arguments),
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_DEADLINE_S,
            check=False,
        )
        told = f"{program}\n{ended.stdout}\n{ended.stderr}"
        assert ended.returncode == 0, told
        unforeseen = [
            line
            for line in complaints(ended.stdout + ended.stderr)
            if not (provoked and re.search(provoked, line))
        ]
        assert not unforeseen, told
        return ended.stdout

    def command(self, program: str, *arguments: str) -> list[str]:
        """Return the command line of a program, for a test that watches it run."""
        return [
            "java",
            "-Xmx256M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._log4j}",
            *("-cp", f"{self._classes}:{self.jars}/*", program, *arguments),
        ]

"""Java programs with an unmodified kafka-clients from Maven, compiled in the test's own folder.

    clients = JavaClients(tmp_path, "3.9.2")
    clients.run("Records", broker.bootstrap, topic)

A version may be one of Maven's ranges: its newest release is taken. Without Java, its compiler or
Maven the test is skipped with the reason; a warning that a client logs fails it.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.harness.kafka import LOG4J_VERSION, MAVEN_DEADLINE_S, ROOT
from tests.harness.tools import LOG4J, complaints

SOURCES = ROOT / "tests" / "interop" / "java"
RUN_DEADLINE_S = 180.0

NEWEST = "[4.3.1,5)"
SPARKS = "3.9.2"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millrace</groupId>
  <artifactId>kafka-clients-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>VERSION</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>{LOG4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""


@cache
def client_jars(version: str) -> Path:
    """The folder with kafka-clients and what it needs, fetched by Maven once and kept."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"Java clients need {tool}, which is not installed")
    name = "newest-4" if version == NEWEST else version
    home = ROOT / ".cache" / f"kafka-clients-{name}"
    jars = home / "lib"
    if jars.is_dir():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(_POM.replace("VERSION", version))
    arriving = home / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={arriving}"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=MAVEN_DEADLINE_S,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"Maven could not fetch kafka-clients {version}: {fetched.stdout[-500:]}")
    # Only a complete folder ever has the final name.
    arriving.rename(jars)
    return jars


class JavaClients:
    """The programs of `tests/interop/java` on one version of kafka-clients."""

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

    @property
    def jar_names(self) -> list[str]:
        """The clients' jars, by name: which version it really is."""
        return [path.name for path in self.jars.glob("kafka-clients-*.jar")]

    def run(self, program: str, *arguments: str, provoked: str = "") -> str:
        """What the program prints; fails on another exit code than 0, and on any complaint.

        `provoked`: a pattern of the complaints that the program brings about on purpose.
        """
        ended = subprocess.run(
            self.command(program, *arguments),
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
        """How to start a program, for whoever wants to watch it while it runs."""
        return [
            "java",
            "-Xmx256M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._log4j}",
            *("-cp", f"{self._classes}:{self.jars}/*", program, *arguments),
        ]

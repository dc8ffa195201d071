"""Apache Kafka's own jars, to compare with: found in the cache, or fetched once by Maven."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"

ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-1.2-api", LOG4J_VERSION),
)

CACHE = Path(__file__).parents[2] / ".cache" / "kafka"


def kafka_jars() -> Path:
    """The folder of Kafka's jars; skips the test where they are missing and cannot be fetched."""
    if shutil.which("java") is None:
        pytest.skip("no java to run Kafka's tools with")
    folder = CACHE / "lib"
    if not list(folder.glob(f"kafka-tools-{KAFKA_VERSION}.jar")):
        _fetch(folder)
    return folder


def run_kafka_tool(main_class: str, *arguments: str, timeout_s: int = 120) -> str:
    """Run one of Kafka's tools: what it printed on both streams, and its exit code."""
    command = ["java", "-Xmx256M", "-cp", f"{kafka_jars()}/*", main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    return f"{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n"


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("Kafka's jars are not cached and there is no Maven to fetch them")
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in ARTIFACTS
    )
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millrace</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Maven could not fetch Kafka's jars: {done.stdout[-300:]}")

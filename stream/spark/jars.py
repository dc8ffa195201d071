"""Spark's Kafka connector: four pinned jars, fetched once at set-up by Spark's own resolver.

The wheel of PySpark has no Kafka connector. `python -m stream.spark.jars --cache DIR` resolves the
jars of `jars.json` in a temporary local session, checks their sha256, and renames each into the
cache folder. A jar that is already there with the right sum is kept, so a second call needs neither
network nor JVM. The stream itself never resolves anything.
"""

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.log import configure, fields

PINS = Path(__file__).with_name("jars.json")

_COPY_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class JarError(Exception):
    """The error when a jar is missing, or has the wrong checksum. Its text says what to do."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One Kafka connector jar with a fixed version and checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def pinned_jars() -> tuple[Jar, ...]:
    """Return the jars of `jars.json` in their order on the class path."""
    return tuple(Jar(**pin) for pin in json.loads(PINS.read_text())["jars"])


def jar_paths(cache: Path) -> tuple[Path, ...]:
    """Return the paths of the jars in the cache, for `spark.jars`."""
    return tuple(cache / jar.file_name for jar in pinned_jars())


def missing_jars(cache: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Return the jars that are not in the cache with the pinned sum."""
    return [jar for jar in jars if sha256_of(cache / jar.file_name) != jar.sha256]


def sha256_of(path: Path) -> str | None:
    """Return the sum of a file; None if there is no file."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_COPY_BYTES):
                digest.update(block)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def store(jar: Jar, source: Path, cache: Path) -> None:
    """Copy a jar into the cache after checking its sum; a wrong jar is never stored."""
    found = sha256_of(source)
    if found != jar.sha256:
        raise JarError(
            f"{jar.coordinate}: found sha256 {found}, expected {jar.sha256}; nothing was installed"
        )
    handle, name = tempfile.mkstemp(dir=cache, prefix=f".{jar.file_name}.")
    try:
        with os.fdopen(handle, "wb") as target, source.open("rb") as file:
            shutil.copyfileobj(file, target, _COPY_BYTES)
            target.flush()
            os.fsync(target.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(cache / jar.file_name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def fetch(cache: Path, jars: Sequence[Jar] | None = None) -> int:
    """Put every missing jar into the cache; return how many were missing."""
    jars = pinned_jars() if jars is None else jars
    cache.mkdir(parents=True, exist_ok=True)
    missing = missing_jars(cache, jars)
    if missing:
        with tempfile.TemporaryDirectory(dir=cache, prefix=".resolve-") as folder:
            for jar, path in _resolve(missing, Path(folder)):
                store(jar, path, cache)
                logger.info("jar installed", extra=fields(jar=jar.file_name))
    return len(missing)


def _resolve(jars: Sequence[Jar], folder: Path) -> list[tuple[Jar, Path]]:
    """Let Spark resolve the jars, without their dependencies, into `folder`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # A host name that does not resolve must not stop the set-up.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("millrace-jars")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.jars.ivy", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    found: list[tuple[Jar, Path]] = []
    try:
        session.sparkContext.setLogLevel("OFF")
        for jar in jars:
            try:
                session.sql(f"ADD JAR 'ivy://{jar.coordinate}?transitive=false'")
            except PySparkException as error:
                raise JarError(_why_not(jar, error)) from error
            matches = list(folder.rglob(f"{jar.group}_{jar.file_name}"))
            if not matches:
                raise JarError(f"{jar.coordinate}: Spark resolved it, but left no file behind")
            found.append((jar, matches[0]))
    finally:
        session.stop()
    return found


def _why_not(jar: Jar, error: Exception) -> str:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
    return (
        f"{jar.coordinate} could not be resolved: {reason}. Expected: a network that reaches a"
        " Maven repository, or one named in spark.jars.ivySettings, or the jar copied by hand into"
        " the cache folder"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: return 0 if all jars are in place, otherwise log the reason, return 1."""
    parser = argparse.ArgumentParser(prog="python -m stream.spark.jars", description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps the jars")
    options = parser.parse_args(arguments)
    configure("stream")
    try:
        count = fetch(options.cache)
    except JarError as error:
        logger.error("%s", error)
        return 1
    logger.info("all jars are in the cache", extra=fields(folder=options.cache, installed=count))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

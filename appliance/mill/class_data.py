"""Creates the JVM's class data archive, with which Spark starts in half the time.

`make setup` runs `python -m appliance.mill.class_data`. That command does a little of the stream's
work, so that Spark's classes are loaded. The JVM writes these classes to the archive when it ends.
An archive fits only one JVM and one set of jars. The name of the archive contains a digest of both,
so no other Java uses it. Without an archive everything works, but Spark starts more slowly.
"""

import hashlib
import logging
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from appliance.config.load import load
from appliance.machine.java import JavaRuntime, find_java
from appliance.mill.home import CODE
from protocol.log import configure, fields

BATCHES = 2
EXIT_TIMEOUT_S = 240.0
FOLDER = CODE / ".cache" / "class-data"

logger = logging.getLogger(__name__)


def archive_path(java: JavaRuntime | None, folder: Path = FOLDER) -> Path | None:
    """Return the path of the archive for a Java runtime, whether or not the archive exists."""
    found = find_spec("pyspark")
    if java is None or found is None or found.origin is None:
        return None
    jars = Path(found.origin).parent / "jars"
    digest = hashlib.sha256(f"{java.home}\n{java.version}\n{jars}".encode())
    for path in sorted(jars.glob("*.jar")):
        digest.update(f"\n{path.name} {path.stat().st_size}".encode())
    return folder / f"spark-{digest.hexdigest()[:16]}.jsa"


def make(path: Path, java: JavaRuntime) -> None:
    """Run Spark once, and store the classes that it has loaded.

    Raises OSError when the JVM wrote nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as folder:
        partial = Path(folder) / path.name
        _run_spark(partial, java, Path(folder))
        if not partial.exists():
            raise OSError("the JVM wrote no archive")
        for other in path.parent.glob("spark-*.jsa"):
            other.unlink()
        partial.replace(path)


def _run_spark(archive: Path, java: JavaRuntime, folder: Path) -> None:
    from stream.config.settings import StreamSettings
    from stream.fold.compile import compile_plan
    from stream.fold.folding import Folding
    from stream.parse.check import check_section
    from stream.spark import java_classes
    from stream.spark.session import jvm_options, start_session

    section = load(CODE / "configs" / "millrace.yaml", CODE, {}).config.stream
    settings = StreamSettings.model_validate(
        {
            "section": section.model_dump(mode="json", by_alias=True),
            "sinks": {},
            "bootstrap_servers": "",
            "data_dir": str(folder),
            "java_home": str(java.home),
        }
    )
    options = " ".join(
        [*jvm_options(settings), f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable"]
    )
    session = start_session(settings, {"spark.driver.extraJavaOptions": options})
    java_classes.load(session, folder)
    check_section(session, section)
    plan = compile_plan(section)
    topics = ", ".join(f"'{topic}'" for topic in section.topics)
    folding = Folding(plan, as_blocks=True)

    def fold_both_ways(batch: Any, _: int) -> None:
        folding.fold_in_driver(batch)
        folding.fold_in_tasks(batch)

    lines: Any = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    query = (
        lines.selectExpr(
            "CAST('x' AS BINARY) AS key",
            "CAST(concat('{\"a\": ', value, '} k=v') AS BINARY) AS value",
            f"element_at(array({topics}), CAST(value % {len(section.topics)} + 1 AS INT)) AS topic",
            "0 AS partition",
            "value AS offset",
            "timestamp",
        )
        .writeStream.foreachBatch(fold_both_ways)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while query.isActive and len(query.recentProgress) < BATCHES:
        query.awaitTermination(0.2)
    query.stop()
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    jvm: subprocess.Popen[bytes] = gateway.proc
    # The JVM ends when its standard input ends, and then writes the archive.
    if jvm.stdin is not None:
        jvm.stdin.close()
    jvm.wait(EXIT_TIMEOUT_S)


def main() -> int:
    """Create the archive unless it exists. Return 0 even if this Java cannot create one."""
    configure("class-data")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    java = find_java()
    path = archive_path(java)
    if java is None or path is None:
        logger.error(
            "Java or PySpark is not installed, so no class data archive was made: run `make setup`"
        )
        return 1
    if path.exists():
        return 0
    try:
        make(path, java)
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning(
            "the class data archive could not be made, so Spark starts more slowly",
            extra=fields(why=error),
        )
        return 0
    logger.info(
        "made the class data archive, with which Spark starts faster",
        extra=fields(bytes=path.stat().st_size),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

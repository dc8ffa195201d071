"""The Spark session of the stream: every setting, each with its reason.

`spark_options` is pure; `start_session` starts the JVM. Nothing else in this room configures Spark.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from stream.config.settings import StreamSettings
from stream.parse.columns import STACK_BYTES
from stream.spark.memory import heap_bytes, machine_bytes

LOGGING = Path(__file__).with_name("log4j2.properties")

# Batches whose files Spark keeps; each costs some files, and only the last two are ever read.
BATCHES_KEPT = 12

# Deep enough for a pattern of a user's that recurses on a long line; unused stack costs nothing.
_STACK = f"-Xss{STACK_BYTES >> 20}m"

# What executors need as the driver does, on whatever machine they run.
_CODE_OPTIONS = (
    _STACK,
    # Both compilers: the quick one alone starts with less, and costs twice as much for ever. The
    # slow one comes ten times later than usual: a start runs nearly everything a few thousand
    # times and nothing for long, and would spend a third of its time in it.
    "-XX:ReservedCodeCacheSize=160m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # Spark compiles all steps that judge a line into one method. Without this option the JVM would
    # never compile a method above 8,000 bytes of bytecode, and would interpret it for every line.
    "-XX:-DontCompileHugeMethods",
)

_JVM_OPTIONS = (
    *_CODE_OPTIONS,
    "-XX:+UseSerialGC",
    "-XX:MaxMetaspaceSize=320m",
    "-XX:MaxDirectMemorySize=96m",
    "-Djava.awt.headless=true",
)


# A session that answers one question ends before the slow compiler has paid for itself: without
# it a dry run takes 9.1 s of processors in place of 12.7.
_QUICK_COMPILER_ALONE = "-XX:TieredStopAtLevel=1"


def spark_options(
    settings: StreamSettings, scratch: Path | None = None, *, is_brief: bool = False
) -> dict[str, str]:
    """All of Spark's settings for these settings of ours; temporary files go into `scratch`."""
    section = settings.section
    local = section.is_local
    options = {
        "spark.app.name": "millrace-stream",
        "spark.master": section.master,
        "spark.driver.memory": f"{heap_bytes(section, machine_bytes()) >> 20}m",
        "spark.driver.extraJavaOptions": " ".join(
            map(_quoted, jvm_options(settings, scratch, is_brief=is_brief))
        ),
        "spark.jars": ",".join(str(path) for path in settings.jars),
        # The default manager runs some twenty small commands a batch.
        "spark.sql.streaming.checkpointFileManagerClass": "millrace.LocalCheckpoint",
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_KEPT),
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # All code of a batch must fit, also with many metrics, or each batch compiles it anew.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # A faulty expression is NULL for its line, never a stopped stream.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "false",
        # Or ${name} in a pattern of a user's would be taken for a variable of Spark's.
        "spark.sql.variable.substitute": "false",
        # It moves an attempt into the branches below it, whose condition then stands outside.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches"
        ),
        # All but Kafka: its older way of reading a batch makes a row of Java's of each record
        # first, and then one of Spark's.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        "spark.sql.debug.maxToStringFields": "8",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(settings.data_dir / "warehouse"),
        "spark.log.structuredLogging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "5",
        "spark.ui.retainedStages": "5",
        "spark.ui.retainedTasks": "50",
        "spark.sql.ui.retainedExecutions": "2",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.worker.ui.retainedExecutors": "1",
        "spark.cleaner.periodicGC.interval": "15min",
    }
    if local:
        options["spark.driver.host"] = "127.0.0.1"
        options["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        options["spark.executor.extraJavaOptions"] = " ".join(_CODE_OPTIONS)
    if scratch is not None:
        options["spark.local.dir"] = str(scratch)
    return {**options, **section.spark}


def jvm_options(
    settings: StreamSettings, scratch: Path | None = None, *, is_brief: bool = False
) -> list[str]:
    """The JVM's own options, with the class data archive when there is one."""
    options = [*_JVM_OPTIONS, "-Xlog:disable", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"]
    if is_brief:
        options.append(_QUICK_COMPILER_ALONE)
    if scratch is not None:
        options.append(f"-Djava.io.tmpdir={scratch}")
    archive = settings.class_data_archive
    if archive is not None and Path(archive).exists():
        # An archive of another JVM or class path is passed over in silence.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    return options


def _quoted(option: str) -> str:
    """An option as Spark reads it out of its one line of options: folders may have spaces."""
    return f'"{option}"' if " " in option else option


def environment(settings: StreamSettings) -> dict[str, str]:
    """What the JVM's process needs in its environment."""
    wanted = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "MALLOC_ARENA_MAX": "2",
    }
    if settings.section.is_local:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if settings.java_home is not None:
        wanted["JAVA_HOME"] = settings.java_home
    return wanted


def empty_scratch(data_dir: Path) -> Path:
    """The driver's own folder for temporary files, emptied: a killed JVM cleans up nothing.

    Only for the one driver that holds the lock of `data_dir`.
    """
    folder = data_dir / "scratch"
    # The JVM of a predecessor may still be on its way out, and be removing its own files.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def start_session(
    settings: StreamSettings,
    more: Mapping[str, str] | None = None,
    scratch: Path | None = None,
    *,
    is_brief: bool = False,
) -> SparkSession:
    """Start the JVM and return its session; raises whatever PySpark does when that fails.

    One that is there for a single question and then ends is started as a brief one.
    """
    os.environ.update(environment(settings))
    if scratch is not None:
        # PySpark makes a folder, too, in which the JVM tells it its port.
        tempfile.tempdir = str(scratch)
    builder = SparkSession.builder
    options = spark_options(settings, scratch, is_brief=is_brief) | dict(more or {})
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session

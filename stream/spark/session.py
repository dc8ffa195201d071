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

# The number of batches whose checkpoint files Spark keeps. Only the files of the last two are read.
BATCHES_KEPT = 12

# The stack is large enough for a user's pattern that recurses on a long line. Unused stack takes no
# memory.
_STACK = f"-Xss{STACK_BYTES >> 20}m"

# Options for the driver and for executors on any machine.
_CODE_OPTIONS = (
    _STACK,
    # Use both compilers of the JVM. The fast one (C1) alone would make code that runs half as fast.
    # The slow one (C2) starts ten times later than by default. Otherwise a start of the stream
    # would spend a third of its time in C2, because it runs most code a few thousand times.
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


# For a session that answers a single question. It ends before the slow compiler pays off: a dry run
# takes 9.1 s of processor time without that compiler, and 12.7 s with it.
_QUICK_COMPILER_ALONE = "-XX:TieredStopAtLevel=1"


def spark_options(
    settings: StreamSettings, scratch: Path | None = None, *, is_brief: bool = False
) -> dict[str, str]:
    """Return the settings of Spark. Temporary files go to `scratch` (None: the system's folder)."""
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
        # Replace Spark's manager of checkpoint files, which starts twenty shell commands per batch.
        "spark.sql.streaming.checkpointFileManagerClass": "millrace.LocalCheckpoint",
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_KEPT),
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # Cache the code of a whole batch, because each batch would otherwise compile it again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # Without ANSI mode, an expression that fails is NULL for its line and does not stop the
        # stream.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "false",
        # Switch substitution off, because ${name} in a user's pattern would be a variable of Spark.
        "spark.sql.variable.substitute": "false",
        # Exclude a rule that would move the condition of a branch out of `millrace_try`, where it
        # can raise.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches"
        ),
        # Leave Kafka out of the sources with the older (V1) reader. That reader is slower, because
        # it converts each record first to a Java row and then to a row of Spark.
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
    """Return the options of the JVM, with the class data archive if that file exists."""
    options = [*_JVM_OPTIONS, "-Xlog:disable", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"]
    if is_brief:
        options.append(_QUICK_COMPILER_ALONE)
    if scratch is not None:
        options.append(f"-Djava.io.tmpdir={scratch}")
    archive = settings.class_data_archive
    if archive is not None and Path(archive).exists():
        # An outdated archive does no harm, because the JVM silently ignores an archive that was
        # made by another JVM or for another class path.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    return options


def _quoted(option: str) -> str:
    """Quote an option that contains a space, because Spark splits its line of options at spaces."""
    return f'"{option}"' if " " in option else option


def environment(settings: StreamSettings) -> dict[str, str]:
    """Return the environment variables for the JVM's process."""
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
    """Empty and return the driver's folder for temporary files, because a killed JVM leaves files.

    The caller must be the driver that holds the lock of `data_dir`.
    """
    folder = data_dir / "scratch"
    # Ignore errors, because the JVM of a predecessor can still be ending and removing its own
    # files.
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
    """Start the JVM and return its session; raises whatever PySpark raises.

    `is_brief`: the session answers a single question and then ends.
    """
    os.environ.update(environment(settings))
    if scratch is not None:
        # PySpark also creates a temporary folder, for the file in which the JVM writes its port.
        # Let this folder be in `scratch`, too.
        tempfile.tempdir = str(scratch)
    builder = SparkSession.builder
    options = spark_options(settings, scratch, is_brief=is_brief) | dict(more or {})
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session

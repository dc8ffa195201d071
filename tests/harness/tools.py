"""Kafka's own command line tools, run from its jars against any broker.

    tools = KafkaTools(tmp_path, broker.bootstrap)
    tools.run(TOPICS, "--list")

A warning or an error that a tool prints fails the test, because it shows a defect of the broker.
The exception is a tool's warning about its own options.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.harness.kafka import kafka_jars

TOOL_DEADLINE_S = 120.0

_TOOLS = "org.apache.kafka.tools."
TOPICS = _TOOLS + "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = _TOOLS + "consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = _TOOLS + "ConsoleProducer"
CONSOLE_CONSUMER = _TOOLS + "consumer.ConsoleConsumer"
GET_OFFSETS = _TOOLS + "GetOffsetShell"
DELETE_RECORDS = _TOOLS + "DeleteRecordsCommand"
LOG_DIRS = _TOOLS + "LogDirsCommand"
TRANSACTIONS = _TOOLS + "TransactionsCommand"
PRODUCER_PERF = _TOOLS + "ProducerPerformance"
CONSUMER_PERF = _TOOLS + "ConsumerPerformance"
VERIFIABLE_PRODUCER = _TOOLS + "VerifiableProducer"
VERIFIABLE_CONSUMER = _TOOLS + "VerifiableConsumer"
API_VERSIONS = _TOOLS + "BrokerApiVersionsCommand"
LEADER_ELECTION = _TOOLS + "LeaderElectionCommand"
REASSIGN = _TOOLS + "reassign.ReassignPartitionsCommand"
CLUSTER = _TOOLS + "ClusterTool"
METADATA_QUORUM = _TOOLS + "MetadataQuorumCommand"
ACLS = _TOOLS + "AclCommand"
FEATURES = _TOOLS + "FeatureCommand"

LOG4J = """status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%p %m (%c)%throwable%n
rootLogger.level=WARN
rootLogger.appenderRef.err.ref=err
"""

_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

COMPLAINT = re.compile(r"\bWARN|\bERROR|Exception|^Error|\bFAILED\b|\bfailed\b", re.MULTILINE)
_OWN_AFFAIRS = re.compile(
    r"deprecated|supplied but (?:are|is) not|not a known config|Option .* has been", re.IGNORECASE
)


def complaints(text: str) -> list[str]:
    """Return the lines in which a client logs a warning or an error, except about its own
    options."""
    return [
        line
        for line in text.splitlines()
        if COMPLAINT.search(line) and not _OWN_AFFAIRS.search(line)
    ]


def warnings_of(log: str) -> list[str]:
    """Return the warnings and errors in a broker's log.

    Warnings about a late event loop are left out, because the tests share a slow machine.
    """
    return [
        line
        for line in log.splitlines()
        if re.search(r" (WARNING|ERROR|CRITICAL) ", line) and "the event loop was late" not in line
    ]


class KafkaTools:
    """The tools, configured for one broker. Their files are written into `folder`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self._jars = kafka_jars()
        folder.mkdir(parents=True, exist_ok=True)
        self._log4j = folder / "tools-log4j2.properties"
        self._log4j.write_text(LOG4J)

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the whole command line, for a test that runs the tool itself."""
        log4j = f"-Dlog4j2.configurationFile={self._log4j}"
        servers = ("--bootstrap-server", self.bootstrap)
        return ["java", *_JVM, log4j, "-cp", f"{self._jars}/*", main, *servers, *arguments]

    def run(self, main: str, *arguments: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """Return the tool's output. Fail on any other exit code than `codes`, and on any
        warning."""
        ended = subprocess.run(
            self.command(main, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_DEADLINE_S,
            check=False,
        )
        told = f"{main} {' '.join(arguments)}\n{ended.stdout}\n{ended.stderr}"
        assert ended.returncode in codes, f"exit {ended.returncode}: {told}"
        assert not complaints(ended.stdout + ended.stderr), told
        return ended.stdout

    def file(self, name: str, text: str) -> str:
        """Write a file with this text. Return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

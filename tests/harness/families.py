"""The client libraries that run unmodified against our brokers, as verifiable clients.

The allowed errors of each family were seen with Apache Kafka 4.3.1, whose brokers were killed in
the same way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.harness import ROOT
from tests.harness.fetched import need_tools
from tests.harness.java import NEWEST, SPARKS, JavaClients, client_version
from tests.harness.kafka import VERSION, kafka_jars
from tests.harness.node import KAFKAJS_VERSION, node_environment
from tests.harness.verifiable.process import Family


def _python(module: str) -> Callable[[Path], tuple[str, ...]]:
    return lambda _: (sys.executable, "-m", f"tests.harness.verifiable.{module}")


def _kcat(folder: Path) -> tuple[str, ...]:
    need_tools(("kcat", "stdbuf"), "the family of kcat")
    return _python("kcat")(folder)


def _kafka_tools(folder: Path) -> tuple[str, ...]:
    kafka_jars()
    return _python("kafka_tools")(folder)


def _kafkajs(_: Path) -> tuple[str, ...]:
    return ("node", str(ROOT / "tests" / "interop" / "javascript" / "verifiable.js"))


def _java(release: str) -> Callable[[Path], tuple[str, ...]]:
    return lambda folder: tuple(JavaClients(folder, release).command("Verifiable"))


def _kcat_version() -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*(librdkafka \S+)", said)
    return f"{found[1]} with {found[2]}" if found else said


MILLRACE = Family("millrace", lambda: "of this tree", _python("millrace"))
LIBRDKAFKA = Family(
    "confluent-kafka",
    lambda: version("confluent-kafka"),
    _python("librdkafka"),
    allowed={
        "commit NOT_COORDINATOR": "librdkafka tries a commit again twice within half a second",
        "commit COORDINATOR_LOAD_IN_PROGRESS": "the same, while the next coordinator reads its log",
        "again _TIMED_OUT": "the call's time is over before another leads; it is made again",
    },
)
AIOKAFKA = Family("aiokafka", lambda: version("aiokafka"), _python("aiokafka_client"))
KAFKA_PYTHON = Family(
    "kafka-python",
    lambda: version("kafka-python"),
    _python("kafka_python"),
    is_transactional=False,
    # Not seen with Kafka. With our broker it came once in twenty kills.
    allowed={
        "commit KafkaConnectionError": "looking for another coordinator it asks for metadata, and "
        "raises when a broker that was killed refuses that connection, whichever broker it was"
    },
)
KCAT = Family(
    "kcat",
    _kcat_version,
    _kcat,
    is_transactional=False,
    answers_at_its_end=True,
    allowed={
        "consume Local: Broker transport failure": "kcat prints whatever librdkafka tells of "
        "itself, so also that the connection to a killed broker has ended"
    },
)
KAFKA_TOOLS = Family(
    "kafka-tools", lambda: VERSION, _kafka_tools, is_transactional=False, chooses_partitions=True
)
KAFKAJS = Family(
    "kafkajs",
    lambda: KAFKAJS_VERSION,
    _kafkajs,
    environment=node_environment,
    allowed=dict.fromkeys(
        (
            "produce KafkaJSNumberOfRetriesExceeded",
            "transact KafkaJSNumberOfRetriesExceeded",
            "transact KafkaJSConnectionError",
            "consume KafkaJSNumberOfRetriesExceeded",
            "consume GROUP_LOAD_IN_PROGRESS",
            "commit KafkaJSNumberOfRetriesExceeded",
            "commit KafkaJSNonRetriableError",
        ),
        "kafkajs gives up after five tries, and tries some requests once",
    )
    # Not seen with Kafka in ten kills, with up to four of these clients.
    | {
        "transact KafkaJSConnectionClosedError": "what kafkajs calls a connection that ends under "
        "a request, whichever broker was at its other end",
        "transact GROUP_LOAD_IN_PROGRESS": "what Kafka's coordinator, too, answers while it reads "
        "its log; of a group it was seen",
        "transact NOT_COORDINATOR_FOR_GROUP": "what Kafka answers, too, when another broker has "
        "become the coordinator; kafkajs tries some requests of a transaction once",
    }
    | dict.fromkeys(
        (
            "produce KafkaJSSASLAuthenticationError",
            "transact KafkaJSSASLAuthenticationError",
            "consume KafkaJSSASLAuthenticationError",
            "commit KafkaJSSASLAuthenticationError",
            "consume KafkaJSNonRetriableError",
        ),
        "kafkajs takes the end of a connection during a login for a wrong password",
    ),
)
JAVA_OF_SPARK = Family("java-of-spark", partial(client_version, SPARKS), _java(SPARKS))
NEWEST_JAVA = Family("newest-java", partial(client_version, NEWEST), _java(NEWEST))

IN_SHORT = (MILLRACE, LIBRDKAFKA, AIOKAFKA)
"""The families for the short form: they have transactions and start quickly."""

ALL = (*IN_SHORT, KAFKA_PYTHON, KCAT, KAFKA_TOOLS, KAFKAJS, JAVA_OF_SPARK, NEWEST_JAVA)

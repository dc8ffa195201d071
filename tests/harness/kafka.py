"""Apache Kafka itself, with which our client and broker are compared and measured.

    with KafkaProcess(tmp_path) as kafka:
        Cluster(kafka.bootstrap, ...)

The jars come from Maven once and stay in `.cache/kafka-<version>/lib`. Without Maven or Java the
test is skipped with a reason. Every node is broker and controller on separate ports, with the flags
of Kafka's own start script. `kill9` and `start` keep ports and data.
"""

import asyncio
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from protocol.client.cluster import Cluster
from protocol.messages.voters import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from tests.harness.maven import LOG4J_VERSION, maven_jars
from tests.harness.ports import free_port
from tests.harness.processes import Server
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

VERSION = "4.3.1"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

FORMAT_DEADLINE_S = 120.0
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0

_LOG4J = """status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""

_JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars. Maven downloads them if needed. Skip the test if that
    is impossible."""
    wanted = {
        "org.apache.kafka:kafka_2.13": VERSION,
        "org.apache.kafka:kafka-tools": VERSION,
        "org.apache.logging.log4j:log4j-slf4j-impl": LOG4J_VERSION,
        "org.apache.logging.log4j:log4j-1.2-api": LOG4J_VERSION,
    }
    return maven_jars(f"kafka-{VERSION}", wanted, tools=("java",), what="Apache Kafka")


class KafkaProcess(Server):
    """A cluster of `nodes` Kafka processes. `properties` are added to each server.properties."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        heap: str = "512M",
    ) -> None:
        self.folder = folder
        self.node_ids = tuple(range(1, nodes + 1))
        self.heap = heap
        self.jars = kafka_jars()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {node_id: free_port() for node_id in self.node_ids}
        self._controller_ports = {node_id: free_port() for node_id in self.node_ids}
        self._properties = dict(properties or {})

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def pids(self) -> list[int]:
        """The process ids of the running nodes."""
        return [process.pid for process in self.processes.values()]

    def start(self) -> Self:
        """Format new folders, start every stopped node, and wait until all serve."""
        self.format()
        self.spawn()
        wait_until(self._is_ready, START_DEADLINE_S, f"Kafka ready; its log: {self.log_text()}")
        return self

    def format(self) -> None:
        """Create the folders of new nodes as Kafka's own tool does."""
        for node_id in self.node_ids:
            home = self.folder / f"kafka-{node_id}"
            config = home / "server.properties"
            if not config.exists():
                home.mkdir(parents=True)
                config.write_text(self._server_properties(node_id, home))
                (home / "log4j2.properties").write_text(_LOG4J)
                self._format(config)

    def spawn(self) -> None:
        """Start every stopped node that is formatted, without waiting."""
        for node_id in self.node_ids:
            if node_id not in self.processes:
                self._start_node(node_id)

    def stop(self, node_id: int | None = None) -> None:
        """Send SIGTERM to one node or to all, and wait."""
        self._end(signal.SIGTERM, self.node_ids if node_id is None else (node_id,))

    def kill9(self, node_id: int | None = None) -> None:
        """Send SIGKILL to one node or to all."""
        self._end(signal.SIGKILL, self.node_ids if node_id is None else (node_id,))

    def controller_id(self) -> int:
        """Return the id of the metadata quorum's leader. Ask with DescribeQuorum, because Kafka's
        Metadata response names any broker as the controller."""
        partition = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
        with WireClient(self.bootstrap.split(",")[0], "harness") as client:
            answer = client.ask(DescribeQuorumRequest(topics=[topic]), 0)
        return int(answer.topics[0].partitions[0].leader_id)

    def log_text(self) -> str:
        """Return the end of the logs of the processes."""
        files = sorted(self.folder.glob("kafka-*.log"))
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files)

    def _start_node(self, node_id: int) -> None:
        home = self.folder / f"kafka-{node_id}"
        log4j = f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"
        with (self.folder / f"kafka-{node_id}.log").open("ab") as log:
            self.processes[node_id] = subprocess.Popen(
                [
                    "java",
                    f"-Xmx{self.heap}",
                    f"-Xms{self.heap}",
                    *_JVM_FLAGS,
                    log4j,
                    "-cp",
                    f"{self.jars}/*",
                    "kafka.Kafka",
                    str(home / "server.properties"),
                ],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _format(self, config: Path) -> None:
        classpath = f"{self.jars}/*"
        command = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format"]
        subprocess.run(
            [*command, "-t", CLUSTER_ID, "-c", str(config)],
            check=True,
            capture_output=True,
            timeout=FORMAT_DEADLINE_S,
        )

    def _server_properties(self, node_id: int, home: Path) -> str:
        voters = ",".join(
            f"{voter}@127.0.0.1:{port}" for voter, port in self._controller_ports.items()
        )
        client = f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}"
        controller = f"CONTROLLER://127.0.0.1:{self._controller_ports[node_id]}"
        copies = str(min(3, len(self.node_ids)))
        in_sync = str(min(2, len(self.node_ids)))
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{client},{controller}",
            "advertised.listeners": client,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(home / "data"),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            **self._properties,
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _is_ready(self) -> bool:
        for node_id, process in self.processes.items():
            if process.poll() is not None:
                raise SystemExit(f"Kafka node {node_id} ended; its log:\n{self.log_text()}")

        async def ask() -> bool:
            cluster = Cluster(self.bootstrap, client_id="harness")
            try:
                await cluster.start(2_000)
                return set(cluster.current.brokers) == set(self.node_ids)
            finally:
                await cluster.close()

        return asyncio.run(ask())

    def _end(self, number: signal.Signals, node_ids: tuple[int, ...]) -> None:
        ending = [self.processes.pop(node_id) for node_id in node_ids if node_id in self.processes]
        for process in ending:
            process.send_signal(number)
        for process in ending:
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        self.kill9()

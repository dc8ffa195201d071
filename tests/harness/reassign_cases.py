"""Calls of `kafka-reassign-partitions`. Tests run each with our command and with Kafka's."""

from tests.harness.kafka_commands import GONE, JOINED, PASSED_OVER, TRACE, USAGE, Case

REASSIGN_CASES = (
    Case("reassign-partitions", "--list"),
    Case(
        "reassign-partitions",
        "--generate --topics-to-move-json-file @topics.json --broker-list 1",
    ),
    Case("reassign-partitions", "--execute --reassignment-json-file @moves.json"),
    Case(
        "reassign-partitions",
        "--execute --reassignment-json-file @moves.json --disallow-replication-factor-change",
    ),
    Case("reassign-partitions", "--verify --reassignment-json-file @moves.json"),
    Case(
        "reassign-partitions",
        "--verify --reassignment-json-file @moves.json --preserve-throttles",
    ),
    Case(
        "reassign-partitions",
        "--verify --reassignment-json-file @moves-absent.json",
        PASSED_OVER,
        (1, 0),
    ),
    Case("reassign-partitions", "--cancel --reassignment-json-file @moves.json", JOINED),
    Case(
        "reassign-partitions",
        "--execute --reassignment-json-file @moves-unknown.json",
        TRACE,
        (1, 1),
    ),
    Case(
        "reassign-partitions",
        "--execute --reassignment-json-file @moves-absent.json",
        TRACE,
        GONE,
    ),
    Case(
        "reassign-partitions", "--execute --reassignment-json-file @delete-bad.json", TRACE, USAGE
    ),
    Case("reassign-partitions", "--execute", codes=USAGE, says=True),
    Case("reassign-partitions", "--list --verify", codes=USAGE, says=True),
    Case("reassign-partitions", "--list --additional", codes=USAGE, says=True),
)

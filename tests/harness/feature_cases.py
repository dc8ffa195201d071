"""Calls of `kafka-features`. Tests run each with our command and with Kafka's, on one broker."""

from tests.harness.kafka_commands import USAGE, Case

FAILED = (1, 1)

FEATURE_CASES = (
    Case("features", "describe"),
    Case("features", "upgrade --metadata 4.0-IV2"),
    Case("features", "upgrade --feature metadata.version=24 --dry-run"),
    Case("features", "downgrade --feature metadata.version=23 --dry-run"),
    Case("features", "downgrade --metadata 4.0-IV1"),
    Case("features", "describe"),
    Case("features", "upgrade --feature metadata.version=24"),
    Case("features", "upgrade --feature metadata.version=25", codes=FAILED, says=True),
    Case("features", "downgrade --feature metadata.version=23 --unsafe", codes=FAILED, says=True),
    Case("features", "disable --feature metadata.version", codes=FAILED, says=True),
    Case("features", "upgrade --feature shops=1", codes=FAILED, says=True),
    Case("features", "upgrade", codes=FAILED, says=True),
    Case("features", "upgrade --feature metadata.version", codes=FAILED, says=True),
    Case("features", "upgrade --feature metadata.version=x", codes=FAILED, says=True),
    Case("features", "upgrade --metadata 9.9", codes=FAILED),
    Case("features", "", codes=USAGE),
)

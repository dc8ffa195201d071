"""The calls of `kafka-configs` for quotas in `kafka_cases`."""

from tests.harness.kafka_commands import USAGE, Case, Difference


def _sorted_words(text: str) -> str:
    """The quotas of an entity in alphabetic order, because Java prints them in that of a hash."""
    lines = []
    for line in text.splitlines():
        head, separator, values = line.partition(" are ")
        lines.append(f"{head}{separator}{', '.join(sorted(values.split(', ')))}")
    return "\n".join(lines)


ORDER = Difference("quotas in their order", _sorted_words, is_sure=False)

USER = "--entity-type users --entity-name q{n}"
CLIENT = "--entity-type clients --entity-name c{n}"
# The names in place of {n} are hexadecimal digits.
IP = "--entity-type ips --entity-name 2001:db8::{n}"
DEFAULTS = "--entity-type users --entity-default --entity-type clients --entity-default"

QUOTA_CASES = (
    Case("configs", f"--describe {USER}"),
    Case(
        "configs",
        f"--alter {USER} --add-config producer_byte_rate=1048576,consumer_byte_rate=20971520",
    ),
    Case("configs", f"--describe {USER}", ORDER),
    Case("configs", f"--alter {USER} {CLIENT} --add-config request_percentage=12.5"),
    Case("configs", f"--describe {USER} {CLIENT}"),
    Case("configs", f"--describe {USER} --entity-type clients"),
    Case("configs", f"--alter {CLIENT} --add-config producer_byte_rate=1000"),
    Case("configs", f"--describe {CLIENT}"),
    Case("configs", "--describe --client c{n}"),
    Case("configs", "--alter --user-defaults --add-config producer_byte_rate=7000000"),
    Case("configs", "--describe --user-defaults"),
    Case("configs", "--alter --user-defaults --delete-config producer_byte_rate"),
    Case("configs", f"--alter {DEFAULTS} --add-config consumer_byte_rate=8000000"),
    Case("configs", f"--describe {DEFAULTS}"),
    Case("configs", f"--alter {DEFAULTS} --delete-config consumer_byte_rate"),
    Case("configs", f"--alter {USER} --delete-config producer_byte_rate"),
    Case("configs", f"--alter {USER} --delete-config producer_byte_rate", codes=(1, 1)),
    Case("configs", f"--describe {USER}"),
    Case("configs", f"--alter {USER} --add-config producer_byte_rate=0", codes=(1, 1)),
    Case("configs", f"--alter {USER} --add-config producer_byte_rate=1.5", codes=(1, 1)),
    Case("configs", f"--alter {USER} --add-config producer_byte_rate=soon", codes=USAGE),
    Case("configs", f"--alter {CLIENT} --add-config retention.ms=1", codes=USAGE),
    Case("configs", f"--alter {CLIENT} --delete-config producer_byte_rate"),
    Case("configs", f"--alter {USER} --delete-config consumer_byte_rate"),
    Case("configs", f"--alter {USER} {CLIENT} --delete-config request_percentage"),
    Case("configs", f"--alter {USER} --add-config controller_mutation_rate=0.5"),
    Case("configs", f"--describe {USER}"),
    Case("configs", f"--alter {USER} --delete-config controller_mutation_rate"),
    Case("configs", f"--alter {IP} --add-config connection_creation_rate=20"),
    Case("configs", f"--describe {IP}"),
    Case("configs", "--describe --ip 2001:db8::{n}"),
    Case("configs", "--describe --ip-defaults"),
    Case("configs", f"--alter {IP} --add-config producer_byte_rate=1", codes=USAGE),
    Case("configs", f"--alter {IP} --add-config connection_creation_rate=0", codes=(1, 1)),
    Case("configs", f"--alter {IP} --add-config connection_creation_rate=1.5", codes=(1, 1)),
    Case("configs", f"--alter {IP} --delete-config connection_creation_rate"),
    Case("configs", f"--describe {IP}"),
)

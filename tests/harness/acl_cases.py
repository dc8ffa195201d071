"""The calls of `kafka-acls` in `kafka_cases`."""

from tests.harness.kafka_commands import USAGE, Case, Difference


def _unindented(text: str) -> str:
    """Return the lines without indentation, because each tool indents only the first ACL of a
    block, and the tools order the ACLs differently."""
    return "\n".join(line.strip() for line in text.splitlines())


ORDER = Difference("ACLs in their order", _unindented, is_sure=False)

ACL_CASES = (
    Case("acls", "--list"),
    Case("acls", "--add --allow-principal User:{n} --operation Read --topic t{n}"),
    Case("acls", "--add --allow-principal User:{n} --operation Read --topic t{n}"),
    Case(
        "acls",
        "--add --allow-principal User:{n} --producer --idempotent --topic p{n}"
        " --transactional-id x{n}",
        ORDER,
    ),
    Case("acls", "--add --allow-principal User:{n} --consumer --topic c{n} --group g{n}", ORDER),
    Case(
        "acls",
        "--add --allow-principal User:{n} --operation Describe --topic lo{n}"
        " --resource-pattern-type prefixed",
    ),
    Case("acls", "--add --deny-principal User:{n} --deny-host 10.0.0.1 --topic * --operation All"),
    Case("acls", "--list --topic t{n}"),
    Case(
        "acls", "--list --topic lo{n}gs --resource-pattern-type match --principal User:{n}", ORDER
    ),
    Case("acls", "--list --principal User:{n}", ORDER),
    Case("acls", "--remove --force --topic t{n}"),
    Case("acls", "--remove --force --allow-principal User:{n} --operation Read --group g{n}"),
    Case("acls", "--list --topic t{n}"),
    Case("acls", "--list --group g{n}"),
    Case("acls", "--add --topic t{n}", codes=USAGE),
    Case("acls", "--add --allow-principal User:{n}", codes=USAGE),
    Case("acls", "--add --allow-principal User:{n} --group g{n} --operation Write", codes=USAGE),
    Case("acls", "--add --list", codes=USAGE),
    Case("acls", "--list --producer", codes=USAGE),
    Case("acls", "--add --allow-principal User:{n} --consumer --topic t{n}", codes=USAGE),
)

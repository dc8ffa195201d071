"""What our `kafka-*` commands and Kafka's own are both asked, and how far they agree.

`tests/interop/test_commands_beside_kafka.py` asks both on one broker; the table in
`docs/kafka-commands.md` is made of the same list, and says which calls the test has shown.
"""

from dataclasses import dataclass

from tests.harness import tools as kafka

NAME = "{n}"
"""Stands for a name of which each side has its own, for calls that change something."""

MAINS = {
    "topics": kafka.TOPICS,
    "console-producer": kafka.CONSOLE_PRODUCER,
    "console-consumer": kafka.CONSOLE_CONSUMER,
    "consumer-groups": kafka.GROUPS,
    "configs": kafka.CONFIGS,
    "get-offsets": kafka.GET_OFFSETS,
    "delete-records": kafka.DELETE_RECORDS,
    "log-dirs": kafka.LOG_DIRS,
    "broker-api-versions": kafka.API_VERSIONS,
    "transactions": kafka.TRANSACTIONS,
    "metadata-quorum": kafka.METADATA_QUORUM,
    "leader-election": kafka.LEADER_ELECTION,
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One call of one tool. `differs` says why the output is not the same; None: it is.

    codes: exit codes, Kafka's and ours. Lines are compared whatever their order, for Java prints
    most maps in the order of their hashes.
    """

    tool: str
    arguments: str
    differs: str | None = None
    codes: tuple[int, int] = (0, 0)
    stdin: str = ""


GONE = (1, 4)
SETTINGS = "a topic's settings in their order"
WORDS = "the broker's own words, where Kafka prints Java's exception"

CASES = (
    Case("topics", "--create --topic new{n} --partitions 2 --config retention.ms=60000"),
    Case("topics", "--create --topic new.{n}"),
    Case("topics", "--create --topic new{n}", codes=(1, 1)),
    Case("topics", "--create --topic new{n} --if-not-exists"),
    Case("topics", "--create --topic assigned{n} --replica-assignment 1,1"),
    Case("topics", "--list"),
    Case("topics", "--list --exclude-internal"),
    Case("topics", "--list --topic lo.*"),
    Case("topics", "--describe", SETTINGS),
    Case("topics", "--describe --topic logs,plain", SETTINGS),
    Case("topics", "--describe --topics-with-overrides", SETTINGS),
    Case("topics", "--describe --under-replicated-partitions"),
    Case("topics", "--describe --unavailable-partitions"),
    Case("topics", "--describe --at-min-isr-partitions --topic logs"),
    Case("topics", "--describe --under-min-isr-partitions"),
    Case("topics", "--describe --topic nobody", codes=GONE),
    Case("topics", "--describe --topic nobody --if-exists"),
    Case("topics", "--alter --topic new{n} --partitions 3"),
    Case("topics", "--alter --topic new{n} --partitions 1", codes=(1, 1)),
    Case("topics", "--delete --topic new{n}"),
    Case("topics", "--delete --topic nobody", codes=GONE),
    Case("console-producer", "--topic made{n}", stdin="one\ntwo\n"),
    Case(
        "console-producer",
        "--topic made{n} --reader-property parse.key=true --reader-property key.separator=:"
        " --reader-property parse.headers=true --reader-property null.marker=NULL",
        stdin="h1:v1,h2:NULL\tk:v\nNULL\tk:NULL\n",
    ),
    Case("console-consumer", "--topic logs --from-beginning --max-messages 6"),
    Case("console-consumer", "--include lo.* --from-beginning --max-messages 6"),
    Case(
        "console-consumer",
        "--topic logs --partition 0 --offset earliest --max-messages 3"
        " --formatter-property print.key=true --formatter-property print.timestamp=true"
        " --formatter-property print.partition=true --formatter-property print.offset=true"
        " --formatter-property print.headers=true --formatter-property print.delivery=true",
    ),
    Case(
        "console-consumer",
        "--topic logs --partition 0 --offset 1 --max-messages 2"
        " --formatter-property key.separator=| --formatter-property print.key=true"
        " --formatter-property null.literal=NIL",
    ),
    Case(
        "console-consumer",
        "--topic transactions --from-beginning --max-messages 1 --isolation-level read_committed",
    ),
    Case("console-consumer", "--topic logs --group read{n} --from-beginning --max-messages 6"),
    Case("consumer-groups", "--list --state empty"),
    Case("consumer-groups", "--describe --group readers"),
    Case("consumer-groups", "--describe --group readers --verbose"),
    Case("consumer-groups", "--describe --group readers --members"),
    Case("consumer-groups", "--describe --group readers --members --verbose"),
    Case("consumer-groups", "--describe --group readers --state"),
    Case("consumer-groups", "--describe --group readers --state --verbose"),
    Case("consumer-groups", "--describe --group nobody", codes=(0, 4)),
    Case("consumer-groups", "--reset-offsets --group readers --topic logs --to-earliest --dry-run"),
    Case("consumer-groups", "--reset-offsets --group readers --topic logs:0 --to-latest --dry-run"),
    Case("consumer-groups", "--reset-offsets --group readers --all-topics --shift-by -1 --dry-run"),
    Case("consumer-groups", "--reset-offsets --group readers --topic logs --to-offset 1 --dry-run"),
    Case(
        "consumer-groups",
        "--reset-offsets --group readers --topic logs --to-datetime 2020-01-01T00:00:00.000Z"
        " --dry-run",
    ),
    Case(
        "consumer-groups",
        "--reset-offsets --group readers --topic logs --by-duration PT0S --dry-run",
    ),
    Case(
        "consumer-groups",
        "--reset-offsets --group readers --all-topics --to-current --export --dry-run",
    ),
    Case("consumer-groups", "--reset-offsets --group read{n} --topic logs --to-earliest --execute"),
    Case("consumer-groups", "--delete-offsets --group read{n} --topic logs"),
    Case("consumer-groups", "--delete --group read{n}"),
    Case("consumer-groups", "--delete --group nobody", WORDS, (0, 4)),
    Case("configs", "--describe --topic logs"),
    Case("configs", "--describe --entity-type topics --entity-name logs --all"),
    Case("configs", "--describe --entity-type brokers --entity-name 1 --all"),
    Case("configs", "--describe --entity-type brokers"),
    Case("configs", "--describe --topic nobody", codes=(0, 4)),
    Case("configs", "--alter --topic made{n} --add-config cleanup.policy=[compact,delete]"),
    Case("configs", "--alter --topic made{n} --delete-config cleanup.policy"),
    Case("configs", "--alter --topic made{n} --add-config nonsense=1", codes=(1, 1)),
    Case("get-offsets", "--topic logs"),
    Case("get-offsets", "--topic logs --time earliest"),
    Case("get-offsets", "--topic logs --time max-timestamp"),
    Case("get-offsets", "--topic logs --time 99999999999999"),
    Case("get-offsets", "--topic-partitions logs:0-1,plain"),
    Case("get-offsets", "--topic logs --partitions 0"),
    Case("get-offsets", "--topic nobody", codes=GONE),
    Case("delete-records", "--offset-json-file @delete-{n}.json"),
    Case("log-dirs", "--describe --topic-list logs,plain", "partitions in their order"),
    Case("broker-api-versions", "", None),
    Case("transactions", "list"),
    Case("transactions", "describe-producers --topic transactions --partition 0"),
    Case("transactions", "find-hanging --broker-id 1"),
    Case("transactions", "describe --transactional-id nobody", codes=GONE),
    Case("metadata-quorum", "describe --status"),
    Case("metadata-quorum", "describe --replication", "its times are those of the call"),
    Case("metadata-quorum", "describe", codes=(1, 2)),
    Case("leader-election", "--election-type preferred --topic logs --partition 0"),
    Case(
        "leader-election",
        "--election-type unclean --path-to-json-file @elect.json",
        "partitions in their order",
    ),
    Case("leader-election", "--election-type preferred --all-topic-partitions"),
    Case(
        "leader-election",
        "--election-type preferred --topic nobody --partition 0",
        WORDS,
        (1, 1),
    ),
    Case("leader-election", "--election-type preferred --partition 0", codes=(1, 2)),
    Case("dump-log", "--files @logs-0.log"),
    Case("dump-log", "--files @logs-0.log --deep-iteration --print-data-log"),
    Case("dump-log", "--files @logs-0.log --print-data-log --skip-record-metadata"),
    Case("dump-log", "--files @transactions-0.log --deep-iteration"),
    Case("dump-log", "--files @offsets.log --offsets-decoder"),
    Case("dump-log", "--files @state.log --transaction-log-decoder"),
    Case("dump-log", "--files @metadata.log --cluster-metadata-decoder"),
    Case("dump-log", "--files @logs-0.index,@logs-0.timeindex"),
)


def table() -> str:
    """The cases as a table of Markdown."""
    lines = ["| call | output | exit code, Kafka's and ours |", "|---|---|---|"]
    for case in CASES:
        shown = case.arguments.replace(NAME, "").replace("@", "")
        shown = f"{shown[:117]}…" if len(shown) > 118 else shown
        call = f"`kafka-{case.tool} {shown}`".replace(" `", "`").replace("|", "\\|")
        same = "identical" if case.differs is None else f"differs: {case.differs}"
        kafka_code, our_code = case.codes
        codes = f"{kafka_code}" if kafka_code == our_code else f"{kafka_code}, {our_code}"
        lines.append(f"| {call} | {same} | {codes} |")
    return "\n".join(lines)

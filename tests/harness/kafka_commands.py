"""Calls of our `kafka-*` commands and of Kafka's own, and the comparison of their results.

`tests/interop/test_commands_beside_kafka.py` runs the calls of `kafka_cases` with both tools on one
broker. The table in `docs/kafka-commands.md` is generated from the same list.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.harness import tools as kafka

NAME = "{n}"
"""A placeholder for a name. The two servers get different names for it, in calls that change
something."""

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
    "reassign-partitions": kafka.REASSIGN,
    "acls": kafka.ACLS,
    "features": kafka.FEATURES,
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The reason why the outputs of a call differ. `without` removes exactly this difference from
    both outputs.

    With `is_sure` the outputs must differ each time, so a test notices when the difference is gone.
    """

    words: str
    without: Callable[[str], str]
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """One call of one tool. `differs` is the reason why the outputs differ, or None if they must be
    equal.

    `codes` are the exit codes of Kafka's tool and of ours. The order of lines is ignored, because
    Java prints most maps in hash order. With `says` the first line of standard error must be equal.
    """

    tool: str
    arguments: str
    differs: Difference | None = None
    codes: tuple[int, int] = (0, 0)
    stdin: str = ""
    says: bool = False


JAVA = "org.apache.kafka.common.serialization."
API = "org.apache.kafka.tools.api."

GONE = (1, 4)
USAGE = (1, 2)


def _settings_in_order(text: str) -> str:
    def sort(found: re.Match[str]) -> str:
        return "Configs: " + ",".join(sorted(found[1].split(",")))

    return re.sub(r"Configs: (.*)", sort, text)


def _partitions_in_order(text: str) -> str:
    head, _, last = text.rstrip("\n").rpartition("\n")
    found = json.loads(last)
    for broker in found["brokers"]:
        for folder in broker["logDirs"]:
            folder["partitions"].sort(key=lambda one: str(one["partition"]))
    return f"{head}\n{json.dumps(found)}"


def _elected_in_order(text: str) -> str:
    def sort(found: re.Match[str]) -> str:
        return found[1] + ", ".join(sorted(found[2].split(", ")))

    return re.sub(r"(for partitions )(.*)", sort, text)


def _without_words(text: str) -> str:
    """Return the text without the words after a colon that announces a reason."""
    reason = r"(Error: |error: |due to: |topic command : |for partition: \S+: ).+"
    return re.sub(reason, r"\1", text, flags=re.IGNORECASE)


def _without_columns(*names: str) -> Callable[[str], str]:
    """Return a function that removes these columns from a table. The table's cells are separated by
    tabs; their padding is removed, too."""

    def without(text: str) -> str:
        rows = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]
        kept = [place for place, name in enumerate(rows[0]) if name not in names]
        return "\n".join("\t".join(row[place] for place in kept) for row in rows)

    return without


def _without_lines(pattern: str) -> Callable[[str], str]:
    def without(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if not re.search(pattern, line))

    return without


def _nothing(text: str) -> str:
    """Drop the whole output, because one of the two tools prints nothing."""
    return ""


def _without_epochs(text: str) -> str:
    """Return printed records without their leader epochs."""
    return re.sub(r"Epoch:\w+", "Epoch", text)


SETTINGS = Difference("a topic's settings in their order", _settings_in_order)
PARTITIONS = Difference("partitions in their order", _partitions_in_order)
ELECTED = Difference("partitions in their order", _elected_in_order)
WORDS = Difference("the broker's own words, where Kafka prints Java's exception", _without_words)
EPOCHS = Difference("the epoch, of which Kafka's prints `NOT_PRESENT`", _without_epochs)
REASON = Difference(
    "the reason on standard output, as of all that fails", _without_lines(r"^Error: ")
)
HEAD = Difference("no head where nothing follows", _without_lines(r"^Dynamic configs for "))
NOTICE = Difference(
    "the notice of a former name on standard error", _without_lines(r"is deprecated and will be")
)
REFUSED = Difference("of KIP-848, which this version does not have", _nothing)
FILTERED = Difference("filtered here, where Kafka's needs a newer broker", _nothing)
BEHIND = Difference("all that is whole behind a damaged batch, where Kafka's gives up", _nothing)
UNKNOWN = Difference("refused before anything is printed", _nothing)
TRACE = Difference(
    "the reason alone, where Kafka prints Java's exception behind it",
    _without_lines(r"^Error: |^\S+(Exception|Error): |^\s+at |^\s+\.\.\. |^Caused by"),
)
PASSED_OVER = Difference("a topic that is gone is passed over, where Kafka's fails", TRACE.without)
JOINED = Difference(
    "a line break that Kafka's leaves out",
    lambda text: text.replace("moves are active.Clearing", "moves are active.\nClearing"),
)
TIMES = Difference(
    "it shows the times of the call",
    _without_columns("LastFetchTimestamp", "LastCaughtUpTimestamp", "TransactionDurationMs"),
    is_sure=False,
)
PRODUCERS = Difference(
    "each side's own producer, and its time-out",
    _without_columns(
        *("ProducerId", "LastTimestamp", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TransactionTimeoutMs",
    ),
)


def table(cases: Sequence[Case]) -> str:
    """Return the cases as a Markdown table."""
    lines = ["| call | output | exit code, Kafka's and ours |", "|---|---|---|"]
    for case in cases:
        shown = case.arguments.replace(NAME, "").replace("@", "")
        shown = f"{shown[:117]}…" if len(shown) > 118 else shown
        call = f"`kafka-{case.tool} {shown}`".replace(" `", "`").replace("|", "\\|")
        same = "identical" if case.differs is None else f"differs: {case.differs.words}"
        kafka_code, our_code = case.codes
        codes = f"{kafka_code}" if kafka_code == our_code else f"{kafka_code}, {our_code}"
        lines.append(f"| {call} | {same} | {codes} |")
    return "\n".join(lines)

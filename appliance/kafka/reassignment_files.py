"""Reads and writes Kafka's JSON files of a reassignment: the plan, and the topics to move.

This module is pure, except for `read` and `write`. If Kafka's tool has a text for a fault, this
text is used.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from appliance.output import CommandError, Exit
from protocol.types import TopicPartition

VERSION = 1
ANY_FOLDER = "any"
PLAN_FORM = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
TOPICS_FORM = '{"version":1,"topics":[{"topic":"t"}]}'

Targets = dict[TopicPartition, tuple[int, ...]]

Folders = Mapping[tuple[TopicPartition, int], str]
"""The folder of a replica, by its partition and broker."""

NO_FOLDERS: Folders = {}


def read(path: str) -> str:
    """Return the text of a file. Raises CommandError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{path} is not a text in UTF-8, expected {PLAN_FORM}", Exit.USAGE
        ) from error


def write(path: Path, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Write a plan to a new file. Raises CommandError if the file exists or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(plan_text(targets) + "\n")
    except FileExistsError as error:
        text = f"{path} exists: name another file with --write, or delete it"
        raise CommandError(text, Exit.USAGE) from error
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error


def plan_text(
    targets: Mapping[TopicPartition, Sequence[int]], folders: Folders = NO_FOLDERS
) -> str:
    """Return a plan on one line, as Kafka writes it. Replicas without a folder have `any`."""
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [folders.get((tp, one), ANY_FOLDER) for one in replicas],
        }
        for tp, replicas in sorted(targets.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def parse_plan(text: str, path: str) -> Targets:
    """Return the replicas of each partition of a plan. Raises CommandError for every fault."""
    rows = _rows(text, path, "partitions", PLAN_FORM)
    if not rows:
        _refuse(path, "Partition reassignment list cannot be empty")
    targets: Targets = {}
    repeated: dict[TopicPartition, None] = {}
    for place, row in enumerate(rows):
        where = f"partitions[{place}]"
        topic, number = row.get("topic"), row.get("partition")
        if not isinstance(topic, str) or not topic or not _is_number(number):
            _refuse(path, f"{where}: expected a topic and a partition, as in {PLAN_FORM}")
        tp = TopicPartition(topic, number)
        if tp in targets:
            repeated[tp] = None
        targets[tp] = _replicas(row, tp, path)
    if repeated:
        names = ",".join(map(str, repeated))
        _refuse(path, f"Partition reassignment contains duplicate topic partitions: {names}")
    return targets


def parse_folders(text: str) -> dict[tuple[TopicPartition, int], str]:
    """Return the folders in the text of a plan that `parse_plan` has accepted."""
    return {
        (TopicPartition(row["topic"], row["partition"]), broker): folder
        for row in json.loads(text).get("partitions", ())
        for broker, folder in zip(row["replicas"], row.get("log_dirs", ()), strict=False)
        if folder != ANY_FOLDER
    }


def parse_topics(text: str, path: str) -> list[str]:
    """Return the topics of a file of topics to move. Raises CommandError for every fault."""
    rows = _rows(text, path, "topics", TOPICS_FORM)
    names = [row.get("topic") for row in rows]
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name:
            _refuse(path, f"topics[{place}]: expected the name of a topic, as in {TOPICS_FORM}")
    if not names:
        _refuse(path, f"the list of topics is empty, expected {TOPICS_FORM}")
    if twice := _repeated(names):
        _refuse(path, f"List of topics to reassign contains duplicate entries: {twice}")
    return names


def parse_brokers(text: str, option: str) -> list[int]:
    """Return the ids of a list such as `1,2,3`. Raises CommandError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise CommandError(f"{option}: found {text!r}, expected ids such as 1,2,3", Exit.USAGE)
    brokers = [int(part) for part in parts]
    if twice := _repeated(brokers):
        raise CommandError(f"Broker list contains duplicate entries: {twice}", Exit.USAGE)
    return brokers


def _rows(text: str, path: str, key: str, form: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"{path} is not valid JSON: {error}; expected {form}", Exit.USAGE
        ) from error
    if not isinstance(found, dict):
        _refuse(path, f"expected {form}")
    version = found.get("version", VERSION)
    if version != VERSION or isinstance(version, bool):
        _refuse(path, f"Not supported version field value {version}; expected {VERSION}")
    rows = found.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        _refuse(path, f"{key}: expected a list, as in {form}")
    return rows


def _replicas(row: Mapping[str, Any], tp: TopicPartition, path: str) -> tuple[int, ...]:
    replicas = row.get("replicas")
    if not isinstance(replicas, list) or not all(_is_number(one) for one in replicas):
        _refuse(path, f"{tp}: expected the ids of brokers under replicas, as in {PLAN_FORM}")
    if not replicas:
        _refuse(path, f"{tp}: Partition replica list cannot be empty")
    if twice := _repeated(replicas):
        _refuse(
            path,
            "Partition replica lists may not contain duplicate entries: "
            f"{tp} contains multiple entries for {twice}",
        )
    folders = row.get("log_dirs", [ANY_FOLDER] * len(replicas))
    if not isinstance(folders, list) or len(folders) != len(replicas):
        _refuse(
            path,
            f"Size of replicas list {replicas} is different from size of log dirs list {folders} "
            f"for partition {tp}",
        )
    if wrong := [one for one in folders if not _is_folder(one)]:
        _refuse(path, f"{tp}: log_dirs has {wrong[0]!r}; expected any, or an absolute path")
    return tuple(replicas)


def _repeated(values: Iterable[Any]) -> str:
    """Return the values that occur more than once, sorted, in the form in which Kafka lists
    them."""
    return ",".join(str(one) for one, times in sorted(Counter(values).items()) if times > 1)


def _is_folder(value: object) -> bool:
    return isinstance(value, str) and (value == ANY_FOLDER or value.startswith("/"))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _refuse(path: str, text: str) -> NoReturn:
    raise CommandError(f"{path}: {text}", Exit.USAGE)

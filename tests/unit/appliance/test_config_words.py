"""No fault message contains the words of a library. The test sets every key of the file to every
kind of wrong value."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from appliance.config.faults import key_text
from appliance.config.findings import finding, keys_at
from appliance.config.model import MillConfig

WRONG: tuple[Any, ...] = (
    None, "", "x", -1, 1.5, 10**40, True, [], {}, [None], {"x": 1}, {"x": {}}, {"x": []}, "10000d",
    {1: 2}, [1, 2, 3, 4], "9" * 400, float("nan"),
)  # fmt: skip

# Words from the messages of pydantic and Python.
FOREIGN = re.compile(
    r"tuple|should|at least \d+ items?\b|valid (string|integer|number|dict|list|tuple|boolean)"
    r"|instance of|validation|pydantic|unable to|dictionary|NoneType|Error\b|function-|constrained"
)

BASE = """
cluster: {}
topics: [{name: a}]
collector: {inputs: [{paths: ["watched/access/**"], topic: logs.access, multiline: {start: x}}]}
stream:
  archive: {folder: data/archive}
  from:
    access: {topic: logs.access, format: json, columns: {level: string, ms: {path: a.b}}}
  defaults: {windows: [1m], keep: {redis: {1m: 1d}, mysql: forever}}
  metrics: [{name: m, from: access, key: level, measure: count, keep: {redis: 1d}}]
sinks: {redis: {host: h}, mysql: {host: h}}
monitor:
  clusters: [{name: b, bootstrap_servers: "h:1"}]
  alerts: {rules: [{name: a, "on": lag, above: 5}]}
ports: {}
"""


def places(node: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in the file, and of every other key that its mappings can
    have."""
    if path:
        yield path
    if isinstance(node, dict):
        for key in {*node, *keys_at(MillConfig, path)}:
            yield from places(node.get(key), (*path, key))
    elif isinstance(node, list):
        for place, entry in enumerate(node):
            yield from places(entry, (*path, place))


def with_value(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    """Return the file with a wrong value at one path."""
    root: dict[str, Any] = yaml.safe_load(BASE)
    node: Any = root
    for step in path[:-1]:
        if isinstance(node, dict) and node.get(step) is None:
            node[step] = {}
        node = node[step]
    node[path[-1]] = value
    return root


def complaints(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield for each fault its key, and the value that its message expects."""
    try:
        MillConfig.model_validate(given)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            path, _, expected, _ = finding(details, MillConfig)
            yield key_text(path), expected


PLACES = sorted(places(yaml.safe_load(BASE)), key=str)


def test_the_file_that_is_spoilt_is_right() -> None:
    assert list(complaints(yaml.safe_load(BASE))) == []


def test_faults_are_in_our_words() -> None:
    said: dict[str, str] = {}
    for path in PLACES:
        for value in WRONG:
            for key, expected in complaints(with_value(path, value)):
                if FOREIGN.search(expected) or FOREIGN.search(key) or not expected:
                    said.setdefault(f"{key}: {expected}", f"{path} {value!r}")
    assert said == {}


def test_an_unknown_complaint_has_words_of_ours() -> None:
    details: Any = {"type": "new_kind", "loc": ("ports",), "input": 1, "msg": "Input should be odd"}
    assert finding(details, MillConfig)[2].startswith("a value of another form")


def test_a_value_of_several_forms_is_one_fault_at_its_own_key() -> None:
    given = with_value(("cluster", "settings"), {"num.partitions": []})
    assert {key for key, _ in complaints(given)} == {"cluster.settings.num.partitions"}

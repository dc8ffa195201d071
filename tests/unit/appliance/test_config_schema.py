"""The JSON Schema of the configuration file is committed and valid, and agrees with `config
check`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from appliance.config.faults import ConfigFaults
from appliance.config.json_schema import json_schema, schema_text
from appliance.config.load import load_text
from appliance.config.model import MillConfig
from appliance.mill.home import CODE, find_home
from appliance.mill.init import SCHEMA_FILE, write_shipped_config
from tests.unit.appliance.test_config_words import BASE, PLACES, with_value

jsonschema = pytest.importorskip("jsonschema", reason="`make setup` installs jsonschema")

SHIPPED = CODE / "configs" / "millrace.yaml"
VALIDATOR: Any = jsonschema.Draft202012Validator(json_schema())

OF_EACH_KIND: tuple[Any, ...] = (None, "x", -1, 1.5, True, [], {}, {"x": 1})

OF_ANOTHER_KIND = (
    "extra_forbidden", "missing", "string_type", "int_type", "int_parsing", "int_from_float",
    "bool_type", "bool_parsing", "tuple_type", "dict_type", "model_type", "model_attributes_type",
    "none_required", "literal_error", "too_short", "too_long",
)  # fmt: skip
"""The types of pydantic's errors for a value of a wrong type, and for an unknown key."""


def faults_of(given: object) -> list[str]:
    """Return the faults that `config check` reports without Spark."""
    try:
        load_text(yaml.safe_dump(given, allow_unicode=True), "f", Path("/nowhere"), {})
    except ConfigFaults as error:
        return [str(fault) for fault in error.faults]
    return []


def _as_loaded(given: dict[str, Any]) -> dict[str, Any]:
    return {key: {} if value is None else value for key, value in given.items()}


def kinds_of(given: dict[str, Any]) -> set[str]:
    """Return the types of the faults that pydantic alone finds."""
    try:
        MillConfig.model_validate(_as_loaded(given))
    except ValidationError as error:
        return {details["type"] for details in error.errors()}
    return set()


def test_the_committed_schema_is_the_code_s() -> None:
    """Run `./millrace config schema > configs/millrace.schema.json` when this fails."""
    assert (CODE / "configs" / SCHEMA_FILE).read_text(encoding="utf-8") == schema_text() + "\n"


def test_the_shipped_file_names_the_schema_in_its_first_line() -> None:
    first, *_ = SHIPPED.read_text().splitlines()
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"


def test_a_new_mill_has_the_schema_beside_its_file(tmp_path: Path) -> None:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    assert write_shipped_config(home)
    beside = tmp_path / "configs" / SCHEMA_FILE
    assert json.loads(beside.read_text()) == json_schema()


def test_the_schema_is_one_of_its_dialect() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("text", [SHIPPED.read_text(), BASE], ids=["shipped", "every form"])
def test_good_files_are_valid(text: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))] == []


FORMS = [
    "collector:",
    "collector: {inputs: [{paths: [a], topic: t, multiline: java}]}",
    "collector: {inputs: [{paths: [a], topic: t, multiline: {indent: true}}]}",
    "collector: {inputs: [{paths: [a], topic: t, max_line_bytes: 2MiB, flush_after: 5s}]}",
    "collector: {inputs: [{paths: [a], topic: t, max_line_bytes: 2048, flush_after: 5000}]}",
    "stream: {from: {a: {topic: logs.access, format: json, time: ts}}}",
    "stream: {from: {a: {topic: logs.access, format: json, time: [ts, date + clock]}}}",
    "stream: {from: {a: {topic: logs.access, format: json, time: {column: ts, layout: '%s'}}}}",
    "stream: {from: {a: {topic: logs.access, format: json, columns: {ms: 'a.b double'}}}}",
    "stream: {from: {a: {topic: logs.access, format: nginx_error}}}",
    "stream: {defaults: {keep: {mysql: forever, redis: {1m: 1d}}}}",
    "stream: {from: {a: {topic: logs.access, format: common}},"
    " metrics: [{name: m, from: a, key: [method, status], measure: count}]}",
    "monitor: {alerts: {rules: [{name: a, 'on': lag, above: 5, for: 2m}]}}",
    "sinks: {redis: null, mysql: {}}",
    "ports: {redis: 6500}",
    "cluster: {bootstrap_servers: 'k:9092', settings: {whatever.they.have: 1}}",
    # Each of these files has one fault.
    "collectr: {}",
    "collector: {inputs: [{paths: [a], topic: t, multiline: jav}]}",
    "collector: {inputs: [{paths: [a], topic: t, multiline: {indnt: true}}]}",
    "collector: {inputs: [{paths: a, topic: t}]}",
    "collector: {inputs: [{paths: [a], topic: t, flush_after: 5 seconds}]}",
    "stream: {from: {a: {topic: logs.access, format: json, columns: {ms: {pth: a}}}}}",
    "stream: {from: {a: {topic: logs.access, format: json, time: {colum: ts}}}}",
    "stream: {from: {A: {topic: logs.access, format: json}}}",
    "stream: {trigger: 100}",
    "stream: {defaults: {keep: {mysql: 90}}}",
    "stream: {metrics: [{name: M, from: a, measure: count}]}",
    "monitor: {alerts: {rules: [{name: a, 'on': log}]}}",
    "ports: {redis: 70000}",
    "cluster: {brokers: 2}",
    "cluster: {settings: {num.partitons: 3}}",
    "topics: [{name: a, settings: {retention: 1}}]",
]


@pytest.mark.parametrize("text", FORMS)
def test_each_form_is_valid_where_the_check_accepts_it(text: str) -> None:
    given = yaml.safe_load(text)
    assert VALIDATOR.is_valid(given) == (not faults_of(given)), faults_of(given)


def test_a_reference_can_stand_for_a_value_of_any_kind() -> None:
    given = {"ports": {"redis": "${PORT}"}, "collector": {"compression": "${CODEC}"}}
    assert VALIDATOR.is_valid(given)
    load_text(yaml.safe_dump(given), "f", Path("/nowhere"), {"PORT": "6500", "CODEC": "zstd"})


def test_every_wrong_value_in_every_place() -> None:
    """The schema rejects every value of a wrong type, and no value that the check accepts.

    The check also parses strings such as globs, zones and expressions. The schema does not, so it
    can accept more. pydantic accepts `true` as the number 1, but the schema does not.
    """
    told: list[str] = []
    for path in PLACES:
        for value in OF_EACH_KIND:
            given = with_value(path, value)
            is_valid, kinds = VALIDATOR.is_valid(given), kinds_of(given)
            if is_valid and kinds & set(OF_ANOTHER_KIND):
                told.append(f"{path} {value!r} is valid and of another kind: {kinds}")
            if not is_valid and not kinds and value is not True and not faults_of(given):
                told.append(f"{path} {value!r} is accepted and not valid")
    assert told == []

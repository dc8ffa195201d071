"""The reference pages are generated from the code and complete, and their examples pass the
check."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, Field

from appliance.config.load import load_text
from appliance.mill.home import CODE
from sinks.values import Measure
from stream.config.format_files import Format, parse_format
from stream.config.formats import COMMON_COLUMNS
from tests.harness.certificates import new_test_authority
from tests.harness.reference_facts import (
    FUNCTIONS,
    REFERENCE,
    Fact,
    columns_of,
    facts,
    format_names,
    models,
    redis_keys,
    tables,
    undocumented,
    view_columns,
)
from tests.harness.reference_pages import filled
from tests.harness.reference_tables import (
    LINE_COLUMNS,
    MEASURES,
    READER_COLUMNS,
    REDIS_KEYS,
    TABLES,
    VIEW_COLUMNS,
)

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_tables_of_a_page_are_those_of_the_code(page: str) -> None:
    """Run `python -m tests.harness.reference_pages` when this fails."""
    assert PAGES[page] == filled(PAGES[page])


def test_everything_is_documented() -> None:
    assert undocumented(PAGES) == []


KINDS = sorted({fact.kind for fact in facts()})


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_row_is_found(kind: str) -> None:
    """Remove one row of this kind from its page, so that the search must report it."""
    fact = next(one for one in facts() if one.kind == kind)
    assert fact in undocumented({**PAGES, fact.page: without_row(PAGES[fact.page], fact)})


def without_row(page: str, fact: Fact) -> str:
    head, heading, rest = page.partition(f"# {fact.heading}\n")
    shorter = re.sub(rf"^\| {re.escape(fact.name)} \|.*\n", "", rest, count=1, flags=re.MULTILINE)
    assert shorter != rest, fact
    return head + heading + shorter


def test_each_kind_of_name_is_a_fact() -> None:
    assert KINDS == [
        "Redis key", "column of a format", "field", "format", "function", "key", "measure",
        "table column", "view column",
    ]  # fmt: skip


def undescribed(model: type[BaseModel]) -> list[str]:
    """Return the keys of a model that lack a description or an example."""
    return [
        name
        for name, field in model.model_fields.items()
        if not field.description or not field.examples
    ]


@pytest.mark.parametrize("label", sorted(models()))
def test_every_key_says_what_it_means_and_has_an_example(label: str) -> None:
    assert undescribed(models()[label]) == []


def test_a_key_without_description_or_example_is_found() -> None:
    class Incomplete(BaseModel):
        bare: int
        described: int = Field(description="a number")
        whole: int = Field(description="a number", examples=[1])

    assert undescribed(Incomplete) == ["bare", "described"]


def test_the_described_names_are_those_of_the_code() -> None:
    assert list(LINE_COLUMNS) == list(COMMON_COLUMNS)
    assert {name: list(columns) for name, columns in READER_COLUMNS.items()} == {
        name: list(columns_of(name)) for name in READER_COLUMNS
    }
    assert list(MEASURES) == list(Measure)
    assert list(VIEW_COLUMNS) == view_columns()
    assert {name: list(columns) for name, (_, columns) in TABLES.items()} == tables()
    assert sorted(REDIS_KEYS) == sorted(redis_keys())


def test_every_format_has_a_section_with_a_line() -> None:
    page = PAGES["formats.md"]
    for name in format_names():
        section = page.partition(f"\n### `{name}`\n")[2].partition("\n### ")[0]
        assert "\n```text\n" in section, name


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page's headings, built by GitHub's rules."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        name, _, anchor = target.partition("#")
        path = REFERENCE / (name or page)
        assert path.exists(), target
        if anchor:
            assert anchor in anchors_of(path.read_text(encoding="utf-8")), target


def test_the_index_names_all_pages() -> None:
    index = (CODE / "docs" / "README.md").read_text()
    assert [page for page in PAGES if f"](reference/{page})" not in index] == []
    assert FUNCTIONS in PAGES


CSV_KEYS = ("delimiter", "quote", "escape", "comment", "header")
ACCESS = {"topic": "logs.access", "format": "combined"}
PARSED: dict[str, dict[str, Any]] = {
    **{key: {"format": "csv"} for key in CSV_KEYS},
    "pattern": {"format": "regex"},
    "columns": {"format": "json"},
    "time": {"format": "json"},
    "reader": {"format": "ours"},
}
COLUMNS: dict[str, dict[str, Any]] = {
    "path": {"format": "json"},
    "type": {"format": "json"},
    "key": {"format": "logfmt"},
    "position": {"format": "csv"},
    "field": {"format": "w3c", "header": "date time cs(User-Agent)"},
    "group": {"format": "regex", "pattern": r"(?<ms>\d+)"},
}
SECTIONS = [f"{one}Section" for one in ("Collector", "Sinks", "Monitor", "Ports", "Security")]
ELSEWHERE = {"bootstrap_servers": "h:1"}
CLUSTER: dict[str, dict[str, Any]] = {"security": ELSEWHERE, "hosts": {"brokers": 3}}
BESIDE = {"hosts": {"network": {"open": ["kafka"], "listen": "0.0.0.0", "login": "users"}}}
LOGIN = {"user": "mill", "password": "s3cret"}
OPENED = {"open": ["kafka"], "names": ["localhost"]}
PROXIED = {
    "login": "proxy",
    "proxies": ["127.0.0.1"],
    "proxy_secret": "a-secret-of-the-proxy",
    "proxy_roles": {"mill-operators": "operator"},
}
LIMITS = {"100000": "lag", "10m": "time_lag", "5%": "unparsed_share"}


def sinks_with(label: str, key: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the section `sinks` with these keys. A server with TLS is one of the user's own."""
    if label == "SinkTls":
        return {"redis": {"host": "redis.example.org", "tls": given}}
    server = {"host": "db.example.org"} if key == "tls" else {}
    return {label.removesuffix("Section").lower(): {**server, **given}}


def with_key(label: str, key: str, value: Any) -> dict[str, Any]:
    """Return a configuration file in which one key has the value, together with the keys that it
    needs."""
    given = {key: value}
    inputs = {"access": ACCESS, "json": {"topic": "logs.json", "format": "json"}}
    one = {"paths": ["watched/x/**"], "topic": "logs.x"}
    metric = {"name": "m", "from": "access", "measure": "count"}
    match label:
        case "MillConfig":
            return given
        case "appliance.ClusterSection":
            return {**BESIDE.get(key, {}), "cluster": {**CLUSTER.get(key, {}), **given}}
        case "ClusterSecuritySection":
            return {"cluster": {**ELSEWHERE, "security": {**LOGIN, **given}}}
        case "TopicSection":
            return {"topics": [{"name": "a", **given}]}
        case _ if label in SECTIONS:
            needed = PROXIED if key.startswith("prox") else {}
            return {label.removesuffix("Section").lower(): {**needed, **given}}
        case "NetworkSection":
            return {"network": {**OPENED, **given}, "monitor": {"login": "users"}}
        case "NetworkTls":
            files = {"certificate": "mill.pem", "key": "mill.key"}
            return {"network": {**OPENED, "tls": {**files, **given}}}
        case "InputSection":
            return {"collector": {"inputs": [{**one, **given}]}}
        case "MultilineSection":
            way = {"start": "x"} if key.startswith("max_") else {}
            return {"collector": {"inputs": [{**one, "multiline": {**way, **given}}]}}
        case "StreamSection":
            return {"stream": {"from": inputs, **given}}
        case "ArchiveSection":
            return {"stream": {"archive": {"folder": "data/archive", **given}}}
        case "ParsedInputSection":
            return {"stream": {"from": {"a": {**ACCESS, **PARSED.get(key, {}), **given}}}}
        case "ColumnSection":
            columns = {"ms": given}
            return {"stream": {"from": {"a": {**ACCESS, **COLUMNS[key], "columns": columns}}}}
        case "TimeSection":
            time = {"column": "ts", **given}
            return {"stream": {"from": {"a": {**ACCESS, "format": "json", "time": time}}}}
        case "MetricSection":
            needs = {"top": {"key": "path"}, "value": {"measure": "sum"}}.get(key, {})
            return {"stream": {"from": inputs, "metrics": [{**metric, **needs, **given}]}}
        case "KeepSection":
            return {"stream": {"defaults": {"keep": given}}}
        case "DefaultsSection":
            return {"stream": {"defaults": given}}
        case "RedisSection" | "MySqlSection" | "SinkTls":
            return {"sinks": sinks_with(label, key, given)}
        case "monitor.ClusterSection":
            cluster = {"name": "b", "bootstrap_servers": "h:1", **given}
            return {"monitor": {"clusters": [cluster]}}
        case "AlertsSection":
            return {"monitor": {"alerts": given}}
        case "RuleSection":
            kind = "disk_free" if key == "below" else LIMITS.get(str(value), "lag")
            limit = {} if key in ("above", "below") else {"above": 5}
            return {"monitor": {"alerts": {"rules": [{"name": "a", "on": kind, **limit, **given}]}}}
    raise AssertionError(f"{label} has no place in the file")


def examples() -> Iterator[tuple[str, str, Any]]:
    """Yield every example of the configuration's keys: the model, the key and the value."""
    for label, model in models().items():
        if not label.startswith("Format"):
            for name, field in model.model_fields.items():
                for value in field.examples or ():
                    yield label, field.alias or name, value


@pytest.mark.parametrize(("label", "key", "value"), list(examples()))
def test_each_example_passes_the_check(label: str, key: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    new_test_authority(tmp_path)
    for name in ("my-mysql", "webhook-token", "cluster"):
        (tmp_path / "data" / "secrets" / name).write_text("s3cret")
    (tmp_path / "data" / "secrets" / "proxy").write_text("a-secret-of-the-proxy")
    (tmp_path / "data" / "secrets" / "webhook").write_text("https://chat.example.org/hooks/mill")
    text = yaml.safe_dump(with_key(label, key, value), allow_unicode=True)
    load_text(text, "example.yaml", tmp_path, {"REDIS_PASSWORD": "s3cret"})


FORMAT = {
    "columns": {"pattern": r"^(?<order>\d+)$"},
    **{key: {"reader": "csv"} for key in CSV_KEYS},
}


@pytest.mark.parametrize("key", [key for key in Format.model_fields if key != "name"])
def test_each_example_of_a_formats_file_is_read(key: str) -> None:
    for value in Format.model_fields[key].examples or ():
        given = {"title": "t", **FORMAT.get(key, {}), key: value}
        parse_format("shop", yaml.safe_dump(given, allow_unicode=True))

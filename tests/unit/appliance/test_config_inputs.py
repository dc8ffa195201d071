"""Environment variables that override the file, references in the file, and `config show`."""

from pathlib import Path

import pytest

from appliance.cli.config_commands import without_secrets
from appliance.config.document import plain_value, read_document
from appliance.config.faults import ConfigFaults
from appliance.config.load import LoadedConfig, load_text


def loaded(text: str, home: Path | None = None, /, **environ: str) -> LoadedConfig:
    return load_text(text, "mill.yaml", home or Path("/nowhere"), environ)


def test_a_variable_overrides_the_file() -> None:
    text = "stream: {trigger: 100ms}"
    assert loaded(text, MILLRACE_STREAM__TRIGGER="2s").config.stream.trigger == "2s"


def test_a_variable_makes_what_the_file_lacks() -> None:
    config = loaded("", MILLRACE_SINKS__REDIS__HOST="redis", MILLRACE_PORTS__MYSQL="4000").config
    assert config.sinks.redis is not None
    assert config.sinks.redis.host == "redis"
    assert config.ports.mysql == 4000


def test_a_variable_reaches_into_a_list() -> None:
    text = "topics: [{name: a}, {name: b}]"
    config = loaded(text, MILLRACE_TOPICS__1__PARTITIONS="6").config
    assert [topic.partitions for topic in config.topics] == [None, 6]


def test_a_variable_may_hold_a_whole_section() -> None:
    config = loaded("topics: [{name: a}]", MILLRACE_TOPICS="[{name: b, partitions: 2}]").config
    assert [(topic.name, topic.partitions) for topic in config.topics] == [("b", 2)]


def test_a_fault_in_a_variable_names_the_variable() -> None:
    with pytest.raises(ConfigFaults) as raised:
        loaded("", MILLRACE_PORTS__REDIS="x", MILLRACE_STRAEM__TRIGGER="1s")
    texts = [str(fault) for fault in raised.value.faults]
    assert texts[0].startswith("environment variable MILLRACE_PORTS__REDIS: ports.redis: found 'x'")
    assert "did you mean stream?" in texts[1]


@pytest.mark.parametrize(
    "name", ["MILLRACE_HOME", "MILLRACE_SEED", "MILLRACE_SHARED", "MILLRACE_OF_SOMEBODY_ELSE"]
)
def test_other_variables_are_left_alone(name: str) -> None:
    assert load_text("", "m", Path("/nowhere"), {name: "7"}).config == loaded("").config


def test_an_impossible_place_is_a_fault() -> None:
    with pytest.raises(ConfigFaults, match="MILLRACE_TOPICS__4__NAME"):
        loaded("topics: [{name: a}]", MILLRACE_TOPICS__4__NAME="b")


def test_references_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p4ss\n")
    text = "sinks: {redis: {host: '${RH}', port: '${RP}', password: '${file:password}'}}"
    redis = loaded(text, tmp_path, RH="10.0.0.1", RP="7000").config.sinks.redis
    assert redis is not None
    assert redis.password is not None
    assert (redis.host, redis.port) == ("10.0.0.1", 7000)
    assert redis.password.get_secret_value() == "p4ss"


def test_a_doubled_dollar_is_one() -> None:
    text = "stream: {from: {a: {topic: logs.text, format: regex, pattern: '(?<x>\\$${)'}}}"
    assert loaded(text).config.stream.from_["a"].pattern == "(?<x>\\${)"


def test_show_keeps_references_and_hides_secrets(tmp_path: Path) -> None:
    text = "sinks: {redis: {host: '${RH}', password: '${P}'}, mysql: {password: plain}}"
    found = loaded(text, tmp_path, RH="10.0.0.1", P="hunter2")
    full = found.config.model_dump(mode="json", by_alias=True)
    shown = without_secrets(full, (), dict(found.references))
    assert shown["sinks"]["redis"]["host"] == "${RH}"
    assert shown["sinks"]["redis"]["password"] == "${P}"
    assert shown["sinks"]["mysql"]["password"] == "(not shown)"
    assert "hunter2" not in str(shown)
    assert "plain" not in str(shown["sinks"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("~", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("10s", "10s"),
        ("2026-08-01", "2026-08-01"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("127.0.0.1:8090", "127.0.0.1:8090"),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


def test_keys_are_always_text() -> None:
    assert read_document("a: {10s: 1, 5: 2, on: 3, null: 4}", "m").root == {
        "a": {"10s": 1, "5": 2, "on": 3, "null": 4}
    }


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 8):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    document = read_document("\n".join(lines), "m")
    assert any("without end" in str(fault) for fault in document.faults)

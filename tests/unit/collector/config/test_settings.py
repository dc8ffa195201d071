"""The collector's settings: which values are accepted, and the message for each other value."""

import pytest
from pydantic import ValidationError

from collector.config.headers import filled_in
from collector.config.input_section import InputSection
from collector.config.settings import CollectorSection, CollectorSettings


def test_section_without_keys_has_the_three_inputs_of_the_shipped_file() -> None:
    section = CollectorSection()
    assert section.topics == ("logs.access", "logs.json", "logs.text")
    assert section.inputs[0].paths == ("watched/access/**",)
    assert section.compression == "gzip"


def test_sizes_and_durations_are_read_with_units() -> None:
    section = CollectorSection.model_validate(
        {
            "inputs": [{"paths": ["a"], "topic": "t", "max_line_bytes": "64KiB"}],
            "scan_interval": "500ms",
            "forget_after": "1d",
        }
    )
    assert section.inputs[0].max_line_bytes == 65536
    assert (section.scan_interval, section.forget_after) == (500, 86_400_000)


def test_settings_survive_json() -> None:
    settings = CollectorSettings(bootstrap_servers="h:1", home="/h", data_dir="/d")
    assert CollectorSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "utf-7"}, "cannot be read one by one, expected utf-8"),
        ({"on_invalid": "drop"}, "'keep', 'replace' or 'dead_letter'"),
        ({"multiline": {"start": "(x"}}, "expected a regular expression: missing"),
        ({"multiline": {"start": "x", "indent": True}}, "found start and continue or indent"),
        ({"multiline": {}}, "found none of them, expected one of preset"),
        ({"multiline": "perl"}, "Input should be 'java', 'python', 'go', 'cri' or 'docker'"),
        ({"after_ingest": "burn"}, "'keep', 'move' or 'delete'"),
        ({"paths": ["w/**"], "after_ingest": "move", "move_to": "w/old"}, "outside the paths"),
        ({"topic": "a b"}, "expected a topic name"),
        ({"topic": "logs.{1}"}, "found 0 wildcards in 'a', expected at least 1 for the topic"),
        ({"topic": "l.{2}", "paths": ["*/x"]}, "found 1 wildcards in '.*/x', expected at least 2"),
        ({"topic": "a b.{1}", "paths": ["*"]}, "expected a topic name"),
        ({"topic": "logs.{name}", "paths": ["*"]}, "for what the wildcards of the paths match"),
        ({"max_topics": 0}, "greater than or equal to 1"),
        ({"topic": "millrace.positions"}, "expected a topic of your own"),
        ({"paths": []}, "at least 1 item"),
        ({"paths": ["watched/../x"]}, "without '..'"),
        ({"exclude": ["a/b"]}, "for one name without '/'"),
        ({"max_line_bytes": "10B"}, "greater than or equal to 1024"),
        ({"keys": 1}, "Extra inputs are not permitted"),
        ({"headers": {"millrace.x": "1"}}, "does not begin with 'millrace.'"),
        ({"headers": {"": "1"}}, "found '', expected a name of 1 to 100 bytes"),
        ({"headers": {"ü" * 51: "1"}}, "expected a name of 1 to 100 bytes"),
        ({"headers": {"a": "x" * 1001}}, "found a value of 1001 bytes for 'a'"),
        ({"headers": {"a": "on {hots}"}}, "found {hots} for 'a', expected {host} or no"),
        ({"headers": {"a": 7}}, "Input should be a valid string"),
        ({"headers": {str(n): "" for n in range(17)}}, "found 17 headers, expected at most 16"),
        ({"fields": {"": 1}}, "found '', expected a name of 1 to 100 bytes"),
        ({"fields": {"a": "on {hots}"}}, "found {hots} for 'a', expected {host} or no"),
        ({"fields": {"a": None}}, "Input should be a valid"),
        ({"fields": {"a": float("nan")}}, "found nan for 'a', expected a finite"),
        ({"fields": {str(n): "x" * 999 for n in range(5)}}, "expected at most 4000"),
        ({"fields": {"a": 1}, "multiline": "java"}, "found fields beside multiline"),
        ({"on_overlong": "drop"}, "'split', 'cut' or 'dead_letter'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    change: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        InputSection.model_validate({"paths": ["a"], "topic": "t"} | change)


def test_headers_up_to_the_limits_are_taken() -> None:
    headers = {f"{n:0100}": "x" * 1_000 for n in range(16)}
    section = InputSection.model_validate({"paths": ["a"], "topic": "t", "headers": headers})
    assert filled_in(section.headers, "h")[15] == (b"%0100d" % 15, b"x" * 1_000)


def test_headers_are_filled_in_with_the_host_and_nothing_else() -> None:
    headers = {"a": "{host}/{host}", "b": '{"json": "{}"}', "c": ""}
    section = InputSection.model_validate({"paths": ["a"], "topic": "t", "headers": headers})
    assert filled_in(section.headers, "web-1") == (
        (b"a", b"web-1/web-1"),
        (b"b", b'{"json": "{}"}'),
        (b"c", b""),
    )


def test_relative_home_is_refused() -> None:
    with pytest.raises(ValidationError, match="home: found 'here', expected an absolute path"):
        CollectorSettings(bootstrap_servers="h:1", home="here", data_dir="/d")

"""Alert rules as users write them: which are valid, and the message for each invalid one."""

from typing import Any

import pytest
from pydantic import ValidationError

from monitor.alerts.webhook import TIMEOUT_S
from monitor.config.alert_rules import (
    NAME_CHARACTERS_MAX,
    RULES_MAX,
    AlertsSection,
    RuleSection,
)
from monitor.config.settings import MonitorSection
from monitor.state.alert import Kind, Rule, Unit


def rule(**keys: Any) -> Rule:
    return RuleSection.model_validate({"name": "r", **keys}).rule()


def said(**section: Any) -> str:
    with pytest.raises(ValidationError) as found:
        AlertsSection.model_validate(section)
    return str(found.value)


@pytest.mark.parametrize(
    ("keys", "limit", "unit"),
    [
        ({"on": "lag", "above": 100_000}, 100_000, Unit.OFFSETS),
        ({"on": "time_lag", "above": "10m"}, 600_000, Unit.MILLISECONDS),
        ({"on": "disk_free", "below": "5%"}, 0.05, Unit.SHARE),
        ({"on": "disk_free", "below": "20GiB"}, 20 << 30, Unit.BYTES),
        ({"on": "unparsed_share", "above": "0.5 %"}, 0.005, Unit.SHARE),
        ({"on": "part_down"}, 0.5, Unit.FLAG),
    ],
)
def test_limits_are_written_in_the_units_people_use(
    keys: dict[str, Any], limit: float, unit: Unit
) -> None:
    found = rule(**keys)
    assert (found.limit, found.unit) == (limit, unit)
    assert (found.for_ms, found.clear_ms, found.of) == (60_000, 60_000, ("*",))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"on": "lag"}, "above: found nothing, expected a limit such as 100000"),
        ({"on": "lag", "above": "10m"}, "above: found '10m', expected a limit such as 100000"),
        ({"on": "lag", "above": 0}, "above: found '0', expected a limit such as 100000"),
        ({"on": "lag", "above": 5, "below": 1}, "below: found '1', expected above for lag"),
        ({"on": "time_lag", "above": 600}, "found '600', expected a limit such as 10m"),
        ({"on": "unparsed_share", "above": "100%"}, "expected a limit such as 5%"),
        ({"on": "disk_free", "above": "5%"}, "above: found '5%', expected below for disk_free"),
        ({"on": "part_down", "above": 1}, "above: found '1', expected no limit for part_down"),
        ({"on": "part_down", "for": "soon"}, "expected a duration such as"),
        ({"on": "part_down", "of": []}, "expected patterns such as"),
        ({"on": "part_down", "name": "no blanks"}, "letters, digits"),
        ({"on": "part_down", "name": "n" * (NAME_CHARACTERS_MAX + 1)}, "at most 60 letters"),
        ({"on": "weather"}, "'part_down'"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(keys: dict[str, Any], words: str) -> None:
    assert words in said(rules=[{"name": "r", **keys}])


@pytest.mark.parametrize("timeout", ["0s", "999ms", "61s", "1h"])
def test_a_message_has_a_deadline_in_bounds(timeout: str) -> None:
    assert f"found '{timeout}', expected 1s to 60s" in said(timeout=timeout)
    assert AlertsSection.model_validate({"timeout": "1500ms"}).timeout_s == 1.5
    assert AlertsSection().timeout_s == TIMEOUT_S


def test_names_are_used_once_and_rules_have_a_bound() -> None:
    one = {"name": "r", "on": "part_down"}
    assert "found the rule 'r' twice" in said(rules=[one, one])
    many = [{**one, "name": f"r{number}"} for number in range(RULES_MAX + 1)]
    assert f"found {RULES_MAX + 1} rules, expected at most {RULES_MAX}" in said(rules=many)
    assert len(AlertsSection.model_validate({"rules": many[1:]}).all_rules()) == RULES_MAX


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "https://", "https://h:0/", "https://h:x/", "https://h/a b", "https://h/é",
     "https://h/\n", "https://user:pw@h/", "nonsense"],
)  # fmt: skip
def test_an_address_that_cannot_be_posted_to_is_refused_and_not_quoted(url: str) -> None:
    text = said(webhook=url)
    assert "webhook" in text
    assert "pw" not in text


def test_a_webhook_stands_in_no_text() -> None:
    section = AlertsSection.model_validate({"webhook": "https://h:8443/s3cret", "token": "t0ken"})
    for text in (str(section), repr(section), str(section.model_dump(mode="json"))):
        assert "s3cret" not in text
        assert "t0ken" not in text


@pytest.mark.parametrize("token", ["two words", "", "é", "a\nb"])
def test_a_token_that_is_no_header_is_refused(token: str) -> None:
    assert "token" in said(token=token)


def test_a_repeat_of_less_than_a_minute_is_refused() -> None:
    assert "at least 1m" in said(repeat="5s")


def test_what_holds_where_the_file_says_nothing() -> None:
    rules = MonitorSection().alerts.all_rules()
    assert {one.kind for one in rules} == set(Kind) - {Kind.LAG}, "a lag has no limit for everybody"
    assert AlertsSection.model_validate({"rules": []}).all_rules() == ()

"""The running mill follows its configuration file: it applies some changes and reports the
others."""

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.config.load import digest_of, load, load_bytes
from appliance.mill.home import CODE, Home
from appliance.supervisor import following as following_module
from appliance.supervisor.following import REMOVAL_TOLD_S, ConfigFollower, keys_for_a_restart
from protocol.settling import SETTLED_S

SHIPPED = (CODE / "configs" / "millrace.yaml").read_text()
METRIC = "    - {name: by_agent, from: access, key: user_agent, measure: count}\n"
MORE = SHIPPED.replace("\nsinks:", f"{METRIC}\nsinks:", 1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return the home of a mill that was started with the shipped file."""
    edited = tmp_path / "configs" / "millrace.yaml"
    copy = tmp_path / "data" / "run" / "millrace.yaml"
    for path in (edited, copy):
        path.parent.mkdir(parents=True)
        path.write_text(SHIPPED)
    return Home(tmp_path, copy, edited=edited)


class Clock:
    """A clock that changes only when the test sets it."""

    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def save(home: Home, text: str, clock: Clock | None = None) -> ConfigFollower:
    """Save the file, and let the follower read it once its modification time has settled."""
    following = ConfigFollower(home, "started", clock or Clock())
    home.edited_config.write_text(text)
    os.utime(home.edited_config, ns=(1, 1))
    assert not following.must_be_read(10.0)
    assert following.must_be_read(10.0 + SETTLED_S)
    following.read()
    return following


def test_an_added_metric_is_taken_over(home: Home) -> None:
    assert MORE != SHIPPED
    following = save(home, MORE)
    assert following.problem is None
    assert following.digest != "started"
    assert home.started_config.read_text() == MORE


def test_changed_topics_hold_back_no_other_change(home: Home) -> None:
    """Parts need the topics only to create missing ones. A metric that is saved later must not
    wait for `up --apply`."""
    text = MORE.replace("retention.ms: 604800000", "retention.ms: 172800000")
    assert text != MORE
    following = save(home, text)
    assert following.problem is None
    assert home.started_config.read_text() == text


def test_a_file_saved_while_the_mill_was_starting_is_taken_over(home: Home) -> None:
    home.edited_config.write_text(MORE)
    following = ConfigFollower(home, "started")
    assert not following.must_be_read(10.0)
    assert following.must_be_read(10.0 + SETTLED_S)


def test_a_file_with_faults_changes_nothing_and_is_said(home: Home) -> None:
    following = save(home, MORE.replace("key: user_agent", "key: user_agant"))
    assert following.problem is not None
    assert "millrace.yaml:" in following.problem
    assert "continues with the previous configuration" in following.problem
    assert (following.digest, home.started_config.read_text()) == ("started", SHIPPED)


def test_what_needs_a_restart_is_named_and_left(home: Home) -> None:
    following = save(home, f"{MORE}\nports: {{redis: 7777}}\n")
    assert following.problem is not None
    assert following.problem.startswith("ports changed in")
    assert "./millrace up --apply" in following.problem
    assert home.started_config.read_text() == SHIPPED


def test_nothing_is_taken_over_but_what_was_checked(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*arguments: Any) -> Any:
        """Check the configuration that was read, and save another one during the check."""
        try:
            return load_bytes(*arguments)
        finally:
            home.edited_config.write_text(MORE.replace("key: user_agent", "key: user_agant"))

    monkeypatch.setattr(following_module, "load_bytes", check)
    following = save(home, MORE)
    assert following.problem is None
    assert home.started_config.read_text() == MORE
    assert following.digest == digest_of(MORE.encode())


def test_a_mended_file_ends_the_problem(home: Home) -> None:
    following = save(home, "stream: 7\n")
    problems = [following.problem]
    home.edited_config.write_text(MORE)
    following.read()
    assert [problem is None for problem in (*problems, following.problem)] == [False, True]
    assert home.started_config.read_text() == MORE


CUT = SHIPPED[: SHIPPED.index("    - {name: bytes_by_status")] + "\nsinks: {redis: {}, mysql: {}}\n"
"""The file after an editor was killed during a save: three of the metrics are missing."""


def test_a_file_that_takes_metrics_away_is_said_for_an_hour_with_the_way_back(home: Home) -> None:
    clock = Clock()
    following = save(home, CUT, clock)
    text = following.notice
    assert text is not None
    assert "removes 3 of 5 metrics: bytes_by_status, lines_by_file, visitors" in text
    assert f"cp {home.config_before} {home.edited_config}" in text
    assert home.config_before.read_text() == SHIPPED
    clock.now_s += REMOVAL_TOLD_S
    assert following.notice is None


def test_metrics_that_come_back_end_the_notice(home: Home) -> None:
    following = save(home, CUT)
    home.edited_config.write_text(SHIPPED)
    following.read()
    assert following.notice is None


def test_a_second_cut_still_leads_back_to_the_whole_file(home: Home) -> None:
    following = save(home, CUT)
    line = "    - {name: top_paths, from: access, key: path, measure: count, top: 10}\n"
    shorter = CUT.replace(line, "")
    assert shorter != CUT
    home.edited_config.write_text(shorter)
    following.read()
    assert "removes 4 of 5 metrics" in str(following.notice)
    assert home.config_before.read_text() == SHIPPED


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (MORE, []),
        (SHIPPED.replace("stream:\n", "stream:\n  heap: 2GiB\n"), ["stream.heap"]),
        ("stream: {metrics: []}\n", ["stream.metrics"]),
    ],
)
def test_which_keys_need_a_restart(home: Home, text: str, keys: list[str]) -> None:
    started = load(home.started_config, home.folder).config
    home.edited_config.write_text(text)
    wanted = load(home.edited_config, home.folder).config
    assert [key for key in keys_for_a_restart(started, wanted) if key.startswith("stream")] == keys

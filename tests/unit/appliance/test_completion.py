"""The completion script, run by bash: the words that it offers, and the CPU time that it takes."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from appliance.cli.cluster import remember, remembered
from appliance.cli.completion_command import script

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

SECONDS_MAX = 0.15


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mill")
    (folder / "data" / "run").mkdir(parents=True)
    os.environ["MILLRACE_HOME"] = str(folder)
    try:
        remember("topics", ["logs.text", "logs.access", "other"])
        remember("groups", ["millrace-stream"])
        (folder / "completion.sh").write_text(script())
        assert remembered("topics", "logs.") == ["logs.access", "logs.text"]
    finally:
        del os.environ["MILLRACE_HOME"]
    return folder


def completed(home: Path, *words: str) -> tuple[list[str], float]:
    """Return the completions of the last word, and the CPU time that bash used."""
    quoted = " ".join(f"'{word}'" for word in ("millrace", *words))
    code = (
        f". {home}/completion.sh; COMP_WORDS=({quoted}); COMP_CWORD={len(words)};"
        ' _millrace; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    before = os.times()
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    after = os.times()
    taken_s = after.children_user + after.children_system
    taken_s -= before.children_user + before.children_system
    return sorted(filter(None, done.stdout.splitlines())), taken_s


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("dum",), ["dump-log"]),
        (("superv",), []),
        (("topic", "de"), ["delete", "describe"]),
        (("topic", "describe", "logs."), ["logs.access", "logs.text"]),
        (("topic", "describe", "--un"), ["--unavailable", "--under-min-isr", "--under-replicated"]),
        (("group", "seek", "mill"), ["millrace-stream"]),
        (("consume", "o"), ["other"]),
        (("--config", "x", "sta"), ["start", "status"]),
    ],
)
def test_what_is_offered(home: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(home, *words)[0] == expected


def test_it_takes_no_time(home: Path) -> None:
    assert min(completed(home, "topic", "describe", "logs.")[1] for _ in range(3)) < SECONDS_MAX


def test_without_names_it_offers_none(home: Path) -> None:
    began = time.monotonic()
    assert remembered("nothing", "") == []
    assert time.monotonic() - began < SECONDS_MAX

"""A changed configuration file is checked. If it has a fault, the inputs stay as they are."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.config.reloading import Reloading, later_keys
from collector.config.settings import CollectorSection, CollectorUpdate, ReloadSettings
from protocol.client.errors import BrokerUnreachable

PRINTS = "import pathlib,sys; sys.stdout.write(pathlib.Path(sys.argv[1]).read_text())"


def wish(*paths: str, **keys: Any) -> dict[str, Any]:
    return {"section": {"inputs": [{"paths": [path], "topic": "t"} for path in paths], **keys}}


class Followed:
    """A configuration file, its follower, and the inputs that were applied."""

    def __init__(self, folder: Path):
        self.file = folder / "wish.json"
        self.taken: list[tuple[str, ...]] = []
        self.fails: Exception | None = None
        self.now_s = 100.0
        self.save(wish("a*"))
        self.reloading = Reloading(
            ReloadSettings(
                file=self.file,
                command=(sys.executable, "-c", PRINTS, str(self.file)),
                sha256=self.sha256(),
            ),
            CollectorUpdate.model_validate(wish("a*")),
            self.take,
        )

    def save(self, content: dict[str, Any] | str) -> None:
        self.file.write_text(content if isinstance(content, str) else json.dumps(content))

    def sha256(self) -> str:
        return hashlib.sha256(self.file.read_bytes()).hexdigest()

    async def take(self, asked: CollectorUpdate) -> None:
        if self.fails is not None:
            raise self.fails
        self.taken.append(tuple(path for one in asked.section.inputs for path in one.paths))

    def look(self, after_s: float = 1.0) -> None:
        """Let the follower read the file twice without a change in between, because it waits until
        a file is stable."""

        async def twice() -> None:
            await self.reloading.look(self.now_s)
            self.now_s += after_s
            await self.reloading.look(self.now_s)

        asyncio.run(twice())


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_what_it_was_started_with_is_no_change(followed: Followed) -> None:
    followed.look()
    assert followed.taken == []
    assert followed.reloading.problem is None


def test_other_inputs_are_taken_over_once(followed: Followed) -> None:
    followed.save(wish("a*", "b*"))
    followed.look()
    followed.look()
    assert followed.taken == [("a*", "b*")]
    assert followed.reloading.sha256 == followed.sha256()


def test_a_file_that_was_saved_during_the_start_is_read(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.save(wish("b*"))
    followed.reloading = Reloading(
        ReloadSettings(
            file=followed.file,
            command=(sys.executable, "-c", PRINTS, str(followed.file)),
            sha256="another",
        ),
        CollectorUpdate.model_validate(wish("a*")),
        followed.take,
    )
    followed.look()
    assert followed.taken == [("b*",)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no json", "Invalid JSON"),
        ({"section": {"inputs": [{"paths": [], "topic": "t"}]}}, "paths"),
        (wish(), "collector.inputs changed: restart"),
        (wish("b*", compression="none"), "collector.compression changed: restart"),
    ],
)
def test_what_cannot_be_taken_over_is_said_and_mended(
    followed: Followed, content: dict[str, Any] | str, said: str
) -> None:
    before = followed.reloading.sha256
    followed.save(content)
    followed.look()
    assert followed.taken == []
    assert said in str(followed.reloading.problem)
    assert "the earlier inputs are still read" in str(followed.reloading.problem)
    assert followed.reloading.sha256 == before
    followed.save(wish("b*"))
    followed.look()
    assert (followed.taken, followed.reloading.problem) == ([("b*",)], None)


def test_a_command_that_fails_says_why(followed: Followed) -> None:
    followed.file.unlink()
    followed.look()
    assert followed.reloading.problem is None, "while an editor saves there may be no file"
    followed.save("x")
    followed.reloading = Reloading(
        ReloadSettings(
            file=followed.file,
            command=(sys.executable, "-c", "import sys; sys.exit('line 7: no such key')"),
            sha256="another",
        ),
        CollectorUpdate.model_validate(wish("a*")),
        followed.take,
    )
    followed.look()
    assert "line 7: no such key" in str(followed.reloading.problem)


def test_a_cluster_that_is_away_is_asked_again(followed: Followed) -> None:
    followed.fails = BrokerUnreachable("no broker there")
    followed.save(wish("b*"))
    followed.look()
    assert "no broker there" in str(followed.reloading.problem)
    followed.fails = None
    followed.look()
    assert followed.taken == []
    followed.look(after_s=10)
    assert (followed.taken, followed.reloading.problem) == ([("b*",)], None)


def test_which_keys_wait_for_a_restart() -> None:
    running = CollectorSection()
    assert later_keys(running, CollectorSection.model_validate({"scan_interval": "1s"})) == [
        "collector.scan_interval"
    ]
    assert later_keys(running, CollectorSection.model_validate(wish("x")["section"])) == []

"""A fleet gives back what it has changed on the machine."""

from pathlib import Path

import pytest

from tests.harness import fleet
from tests.harness.fleet import Fleet


@pytest.mark.parametrize(("before", "meanwhile"), [("128\n", "306"), ("8192\n", "8192\n")])
def test_the_limit_of_inotify_instances_is_raised_only_while_the_fleet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, meanwhile: str
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(before)
    monkeypatch.setattr(fleet, "INOTIFY", limit)
    found: list[str] = []

    def enrol() -> None:
        found.append(limit.read_text())
        raise InterruptedError

    collectors = Fleet(tmp_path, [], tmp_path / "ca.pem", 50)
    monkeypatch.setattr(collectors, "enrol", enrol)
    with pytest.raises(InterruptedError), collectors:
        pass
    assert found == [meanwhile]
    assert limit.read_text() == before

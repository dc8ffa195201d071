"""A command line beside the scripted cluster of a module."""

from pathlib import Path

import pytest

from appliance.kafka import reassign
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.reassign_desk import Desk


@pytest.fixture
def desk(cluster: FakeQuorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a user of the module's `cluster`. Commands that wait for it ask it often."""
    monkeypatch.setattr(reassign, "POLL_S", 0.01)
    return Desk(cluster, tmp_path, monkeypatch)

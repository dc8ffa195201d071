"""Plays the scripts of the quorum's replicas (`tests/scripts/quorum`)."""

from pathlib import Path

import pytest

from tests.harness.plays import hold_to_script
from tests.sim.quorum_player import QuorumPlayer

SCRIPTS = sorted((Path(__file__).parents[3] / "scripts" / "quorum").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_script_goes_as_it_is_written(script: Path) -> None:
    hold_to_script(script, QuorumPlayer())

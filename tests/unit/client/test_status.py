"""The status object survives a round trip through JSON, and other objects are rejected."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from protocol.status import (
    VERSION,
    PartState,
    PartStatus,
    Problem,
    StatusUnavailable,
    fetch_status,
)
from tests.harness.ports import free_port

STATUS = PartStatus(
    part="collector",
    state=PartState.DEGRADED,
    ready=False,
    started_at_ms=1_000,
    now_ms=2_000,
    problems=(Problem("broker_away", "no broker answers on 127.0.0.1:9092"),),
    details={"lines_total": 7},
)


def test_round_trip() -> None:
    assert PartStatus.decode(STATUS.encode()) == STATUS
    assert STATUS.to_json()["schema"] == "status/1"


def test_keys_of_later_versions_are_ignored() -> None:
    assert PartStatus.decode(json.dumps({**STATUS.to_json(), "later": 1}).encode()) == STATUS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        json.dumps({**STATUS.to_json(), "schema": "status/2"}).encode(),
        json.dumps({**STATUS.to_json(), "state": "asleep"}).encode(),
        json.dumps({**STATUS.to_json(), "problems": [1]}).encode(),
    ],
)
def test_anything_else_is_unavailable(body: bytes) -> None:
    with pytest.raises(StatusUnavailable):
        PartStatus.decode(body)


def test_reason_not_ready_names_problems_or_the_state() -> None:
    assert STATUS.reason_not_ready() == "broker_away: no broker answers on 127.0.0.1:9092"
    starting = PartStatus("stream", PartState.STARTING, False, 0, 0)
    assert starting.reason_not_ready() == "stream is starting"


def test_no_listener_is_unavailable() -> None:
    with pytest.raises(StatusUnavailable, match="refused"):
        fetch_status("127.0.0.1", free_port(), 1.0)


def test_the_project_takes_its_version_from_here() -> None:
    found = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["hatch"]["version"]
    matched = re.search(found["pattern"], Path(found["path"]).read_text())
    assert matched is not None
    assert matched["version"] == VERSION

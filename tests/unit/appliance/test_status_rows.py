"""`status`: a part that finishes nothing is said, though it says itself that all is well."""

import pytest

from appliance.cli import status_command
from protocol.status import PartState, PartStatus, Problem


def row_of(part: str) -> dict[str, object]:
    return {"part": part, "state": "healthy", "address": "127.0.0.1:8090", "reason": ""}


@pytest.mark.parametrize(
    ("part", "code", "state"),
    [
        ("monitor", "part-stuck", "degraded"),
        # Others say themselves that they are away; twice would be noise.
        ("monitor", "brokers-away", "healthy"),
        ("stream", "poison", "degraded"),
        ("redis", "part-stuck", "healthy"),
    ],
)
def test_the_monitor_tells_of_stuck_parts(
    part: str, code: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(code, "stream has finished nothing for 80 s")
    answer = PartStatus(part, PartState.DEGRADED, True, 0, 0, problems=(problem,))
    monkeypatch.setattr(status_command, "fetch_status", lambda *_: answer)
    found = status_command._as_it_says_itself(row_of(part))
    assert found["state"] == state
    assert bool(found["reason"]) == (state == "degraded")

"""If Redis hangs, the command line soon reads a metric from MySQL."""

import pytest

from appliance.traffic import readings
from appliance.traffic.readings import ReadingError
from tests.harness.silent import silent_server


def test_a_redis_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "TIMEOUT_S", 0.2)
    with silent_server() as server:
        settings = {"host": "127.0.0.1", "port": server.port, "username": None, "password": None}
        with pytest.raises(ReadingError, match="Redis"):
            readings._from_redis(settings, "requests_by_status", "all")
        assert len(server.taken) == 1

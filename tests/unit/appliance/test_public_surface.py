"""The public surface equals public_surface.txt, so no change of it goes unnoticed.

    MILLRACE_WRITE_SURFACE=1 pytest tests/unit/appliance/test_public_surface.py

writes the file. If a line disappears, a user must change something. Say in changelog.d what.
"""

import os
from pathlib import Path

from fastapi.testclient import TestClient

from monitor.config.settings import MonitorSettings
from monitor.http import create_app
from monitor.sampling.sampler import Sampler
from tests.unit.appliance.surface import FILE, surface
from tests.unit.monitor.scene import FLOWING, NOW_MS, Mill, StandingStill

REWRITE = f"run this file with MILLRACE_WRITE_SURFACE=1, which rewrites {FILE.name}"


def test_no_public_name_changes_unseen(tmp_path: Path) -> None:
    mill = Mill(FLOWING, None)
    mill.run(3)
    settings = MonitorSettings(bootstrap_servers="b:1", data_dir=str(tmp_path), parts={})
    sampler = Sampler(settings, StandingStill(mill), lambda: NOW_MS)
    sampler.resume(mill.snapshot, mill.memory, mill.progress)
    app = create_app(
        settings, sampler, started_at_ms=0, clock_ms=lambda: NOW_MS, on_failure=lambda error: None
    )
    found = surface(TestClient(app, base_url="http://127.0.0.1:8090"))
    if os.environ.get("MILLRACE_WRITE_SURFACE"):
        FILE.write_text("\n".join(found) + "\n")
    known = FILE.read_text().splitlines()
    assert sorted(set(known) - set(found)) == [], f"gone; {REWRITE}"
    assert sorted(set(found) - set(known)) == [], f"new; {REWRITE}"


def test_each_kind_of_name_is_in_the_file() -> None:
    """The file would equal the list even if the list had lost one of its sources. So this test
    names an entry of each source."""
    known = FILE.read_text().splitlines()
    for line in (
        "command millrace lag --watch",
        "command millrace stream forget METRIC",
        "key stream.metrics.measure",
        "api /api/v1/lag ?group",
        "api /api/v1/groups .lag",
        "prometheus millrace_group_lag_offsets",
        "redis mill:meta",
        "schema lag/1",
        "mysql ledger.end_offset",
        "mysql metric.estimate",
    ):
        assert line in known, line

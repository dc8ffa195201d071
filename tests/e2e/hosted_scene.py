"""A mill on three hosts that counts lines, and how many lines were written, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.hosted_mill import HOSTS, HostedMill, hosted_mill
from tests.e2e.reading import Reading
from tests.harness.wait import wait_until

COUNTED_S = 240.0
LINE = '192.0.2.9 - - [28/Nov/2026:09:00:00 +0000] "GET /{} HTTP/1.1" 200 1 "-" "curl/8.5.0"\n'
PER_FILE = 200


class HostedScene:
    """The mill on three hosts, and how many lines were written."""

    def __init__(self, mill: HostedMill, folder: Path) -> None:
        self.mill = mill
        self.folder = folder
        self.written = 0

    @property
    def _reading(self) -> Reading:
        """The servers of the main host, which can have moved to another machine."""
        return Reading(self.mill.main)

    def write(self, folder: Path | None = None) -> None:
        """Write a file with lines on the main host, or into a folder of another one."""
        to = self.mill.main.home.folder / "watched" / "access" if folder is None else folder
        text = "".join(LINE.format(self.written + one) for one in range(PER_FILE))
        (to / f"{self.written}.log").write_text(text)
        self.written += PER_FILE

    def counted(self) -> int:
        with self.mill.inside(1):
            return int(self._reading.redis("mill:requests_by_status:all").get("200", "0"))

    def is_exact(self) -> None:
        """Wait until every line is counted, and check that none is counted twice."""
        wait_until(lambda: self.counted() >= self.written, COUNTED_S, f"{self.written} lines")
        assert self.counted() == self.written
        with self.mill.inside(1):
            rows = self._reading.mysql(
                "SELECT SUM(value) FROM windows WHERE metric = 'requests_by_status' AND size_s = 0"
            )
        assert int(rows[0][0]) == self.written

    def in_sync(self) -> None:
        """Wait until all replicas are in sync."""
        wait_until(lambda: self.mill.under_replicated() == 0, COUNTED_S, "all replicas in sync")


@contextmanager
def hosted_scene(folder: Path) -> Iterator[HostedScene]:
    """Join and start the three hosts. They are stopped at the end."""
    with hosted_mill(folder) as mill:
        for host in HOSTS[1:]:
            mill.joins(host, folder)
        mill.up()
        yield HostedScene(mill, folder)

"""A real stream process with separate settings, port and folder.

    with StreamProcess(tmp_path, section, sinks, broker.mill_bootstrap) as stream: ...

`kill9` and `start` may alternate and keep the data folder. `log_text()` returns the log.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sinks.config import SinksSettings
from stream.spark.jars import jar_paths, missing_jars, pinned_jars
from tests.harness import ROOT
from tests.harness.processes import PartProcess

JARS = Path(os.environ.get("MILLRACE_JARS", ROOT / ".cache" / "jars"))


def connector_jars() -> tuple[Path, ...]:
    """Return the jars of Spark's Kafka connector, which `make setup` has downloaded. Skip the test
    if one is missing."""
    if missing_jars(JARS, pinned_jars()):
        pytest.skip(f"Spark's Kafka connector is not in {JARS}: make setup brings it there")
    return jar_paths(JARS)


class StreamProcess(PartProcess):
    """One stream process: a Spark driver in Python with its JVM. The signals of this class go to
    the driver. The JVM ends automatically after the driver."""

    START_DEADLINE_S = 180.0
    STOP_DEADLINE_S = 60.0

    def __init__(
        self,
        folder: Path,
        section: dict[str, Any],
        sinks: SinksSettings,
        bootstrap_servers: str,
        name: str = "stream",
    ) -> None:
        super().__init__("stream", folder / f"{name}.log")
        self.section = section
        self.sinks = sinks
        self.bootstrap_servers = bootstrap_servers
        self.data_dir = folder / name
        self.class_data_archive: Path | None = None
        self.wish_file = folder / f"{name}.wish.json"
        self._jars = connector_jars()

    def settings_object(self) -> dict[str, Any]:
        show = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
        return {
            **self._wish(),
            "part": "stream",
            "sinks": self.sinks.model_dump(mode="json"),
            "bootstrap_servers": self.bootstrap_servers,
            "data_dir": str(self.data_dir),
            "jars": [str(path) for path in self._jars],
            "class_data_archive": str(self.class_data_archive) if self.class_data_archive else None,
            "status": {"host": "127.0.0.1", "port": self.status_port},
            "reload": {
                "file": str(self.wish_file),
                "command": [sys.executable, "-c", show, str(self.wish_file)],
            },
        }

    def _wish(self) -> dict[str, Any]:
        topics = [given["topic"] for given in self.section["from"].values()]
        return {
            "section": self.section,
            "topics": [{"name": topic, "partitions": 3, "replication": 1} for topic in topics],
        }

    def change(self, section: dict[str, Any]) -> None:
        """Replace the section for the next start, and in the file that the running process
        reloads."""
        self.section = section
        draft = self.wish_file.with_suffix(".tmp")
        draft.write_text(json.dumps(self._wish()))
        draft.replace(self.wish_file)

"""`python -m tests.e2e.page_scene STORY PORT FOLDER`: the site of a story until it is killed.

Its clock goes on, so that every tick is another page.
"""

import sys
import time
from pathlib import Path

import uvicorn

from monitor.config import InputSettings, MonitorSection, MonitorSettings
from monitor.counts import Counts
from monitor.http import create_app
from monitor.reading import Reading
from monitor.sampler import Sampler
from tests.unit.monitor import scene


class Moving:
    """A source that says the last of the story again and again, each time a little later."""

    def __init__(self, mill: scene.Mill) -> None:
        self._mill = mill
        self._step = scene.STEPS

    async def read(self, now_ms: int) -> Reading:
        self._step += 1
        return self._mill.reading(self._step)

    async def close(self) -> None:
        return None


def main(story: str, port: int, folder: Path) -> None:
    """Serve."""
    mill = scene.Mill(getattr(scene, story), folder)
    mill.run()
    settings = MonitorSettings(
        section=MonitorSection(listen=f"127.0.0.1:{port}"),
        bootstrap_servers="127.0.0.1:19092",
        data_dir=str(folder),
        parts={},
        inputs=(InputSettings(paths=("watched/access/**",), topic="logs.access"),),
        metrics=scene.METRICS,
    )
    began_s = time.monotonic()

    def clock_ms() -> int:
        return scene.NOW_MS + round((time.monotonic() - began_s) * 1000)

    sampler = Sampler(settings, Moving(mill), clock_ms, mill.recorder, mill.alerts)
    sampler.resume(mill.snapshot, mill.memory, mill.progress)

    def failed(error: BaseException) -> None:
        raise SystemExit(1) from error

    app = create_app(
        settings,
        sampler,
        started_at_ms=scene.BEGIN_MS,
        clock_ms=clock_ms,
        on_failure=failed,
        counts=Counts(scene.ScriptedCounts, clock_ms),
        browser=scene.ScriptedMessages(),
    )
    uvicorn.run(app, host="127.0.0.1", port=port, log_config=None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

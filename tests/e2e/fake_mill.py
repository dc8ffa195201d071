"""The real supervisor with fake parts, as a separate process.

`python -m tests.e2e.fake_mill SPEC` starts it. SPEC is a JSON list of parts, each with name, port,
modes, start_rank, stop_rank and stop_timeout_ms.
"""

import asyncio
import json
import sys
from typing import Any

from appliance.mill.home import find_home
from appliance.mill.parts import Part, ProbeKind
from appliance.supervisor.driver import Driver, MillAlreadyRunning, take_lock
from appliance.supervisor.following import ConfigFollower
from protocol.log import configure

ALREADY_RUNNING = 17


def part_of(entry: dict[str, Any]) -> Part:
    """Return a fake part in the form that the supervisor uses."""
    return Part(
        name=entry["name"],
        probe=ProbeKind.HTTP,
        host="127.0.0.1",
        port=entry["port"],
        ports=(),
        start_rank=entry.get("start_rank", 0),
        stop_rank=entry.get("stop_rank", 0),
        start_timeout_ms=30_000,
        stop_timeout_ms=entry.get("stop_timeout_ms", 20_000),
    )


def main(spec: list[dict[str, Any]]) -> int:
    """Run the parts until a command stops the supervisor."""
    configure("supervisor")
    home = find_home()
    try:
        take_lock(home)
    except MillAlreadyRunning:
        return ALREADY_RUNNING
    driver = Driver(
        home,
        [part_of(entry) for entry in spec],
        version="test",
        following=ConfigFollower(home, "test"),
        commands={
            entry["name"]: [
                sys.executable,
                "-m",
                "tests.e2e.fake_part",
                str(entry["port"]),
                *entry.get("modes", []),
            ]
            for entry in spec
        },
        leftover_stop_s=1.0,
    )
    asyncio.run(driver.run())
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

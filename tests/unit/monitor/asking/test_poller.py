"""If no broker answers, a polling cycle still reads everything else and records why the brokers are
missing."""

import asyncio
from pathlib import Path

from monitor.asking.poller import GROUPS_MAX, Poller, watched
from monitor.state.reading import Reading
from protocol.security.cluster_security import ClusterEntry
from protocol.status import PartState, PartStatus
from protocol.status_http import StatusServer
from tests.harness.ports import free_port

AT_MS = 10_000


def a_status() -> PartStatus:
    return PartStatus(
        "collector", PartState.RUNNING, ready=True, started_at_ms=1, now_ms=2, details={"files": 3}
    )


def read_without_brokers(tmp_path: Path) -> tuple[Reading, str, str]:
    """Run one cycle. Return its reading, the brokers' address, and the address of a part that does
    not answer either."""
    brokers, away = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    async def run() -> Reading:
        server = StatusServer("127.0.0.1", 0, a_status, lambda: "")
        await server.start()
        poller = Poller(
            ClusterEntry(brokers),
            {"stream": f"http://{away}", "collector": f"http://127.0.0.1:{server.port}"},
            supervisor=str(tmp_path / "absent.sock"),
            disks={"data": tmp_path},
        )
        try:
            return await poller.read(AT_MS)
        finally:
            await poller.close()
            await server.close()

    return asyncio.run(run()), brokers, away


def test_without_brokers_a_cycle_tells_of_all_else(tmp_path: Path) -> None:
    reading, brokers, away = read_without_brokers(tmp_path)
    assert (reading.now_ms, reading.kafka) == (AT_MS, None)
    (error,) = reading.errors
    assert (error.source, error.text.startswith(f"{brokers}: ")) == ("brokers", True)
    parts = {one.name: one for one in reading.parts}
    assert parts["stream"].status is None
    assert parts["stream"].address == away
    assert parts["stream"].error
    status = parts["collector"].status
    assert status is not None
    assert (status.state, status.details) == (PartState.RUNNING, {"files": 3})
    (disk,) = reading.disks
    assert (disk.name, 0 < disk.free_bytes <= disk.size_bytes) == ("data", True)
    assert reading.supervisor is None


def test_our_own_group_is_looked_at_however_many_come_before_it() -> None:
    names = {f"console-consumer-{number}": "" for number in range(GROUPS_MAX + 7)}
    assert watched(names, "millrace-stream") == tuple(sorted(names)[:GROUPS_MAX])
    found = watched(names | {"millrace-stream": ""}, "millrace-stream")
    assert (len(found), found[-1]) == (GROUPS_MAX, "millrace-stream")
    assert watched({"b": "", "a": ""}, "a") == ("a", "b")

"""The read of stored positions over the connections that short requests share."""

import asyncio
from collections.abc import Awaitable, Callable

from collector.send.position_log import POLL_MS, PositionLog
from protocol.client.admin import Admin
from protocol.client.fetcher import Fetcher
from protocol.messages.fetch import FetchRequest
from tests.unit.client.scripted_server import Answer, Received
from tests.unit.client.test_fetcher import ONE, ZERO, Leaders, reading

LATE_S = 0.1


def test_a_leader_that_was_read_to_its_end_answers_the_next_request_soon() -> None:
    """While the other leader is late, the first one gets a Fetch at its end, and holds it for the
    time that the Fetch states. The first commit of the collector follows on this connection."""

    waits_ms: list[int] = []

    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        def watched(node_id: int, late_s: float) -> Callable[[Received], Awaitable[Answer]]:
            answer = leaders.script_of(node_id)

            async def script(request: Received) -> Answer:
                if isinstance(request.message, FetchRequest):
                    waits_ms.append(request.message.max_wait_ms)
                    await asyncio.sleep(late_s)
                return await answer(request)

            return script

        leaders.servers[1].script = watched(1, 0)
        leaders.servers[2].script = watched(2, LATE_S)
        log = PositionLog(fetcher._cluster, Admin(fetcher._cluster), None)
        assert len(await log.read({ZERO: 10, ONE: 10})) == 20
        assert (1, {0: 10}) in leaders.fetches

    reading(test)
    assert max(waits_ms) <= POLL_MS

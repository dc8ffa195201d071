"""The read of stored positions over the connections that short requests share."""

import asyncio
import time

from collector.send.position_log import PositionLog
from protocol.client.admin import Admin
from protocol.client.fetcher import Fetcher
from protocol.messages.fetch import FetchRequest
from protocol.types import LATEST_TIMESTAMP
from tests.unit.client.scripted_server import Answer, Received
from tests.unit.client.test_fetcher import ONE, ZERO, Leaders, reading

LATE_S = 0.1


def test_a_leader_that_was_read_to_its_end_answers_the_next_request_soon() -> None:
    """While the other leader is late, the first one gets a Fetch at its end. The first commit of
    the collector follows on this connection."""

    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        answer = leaders.script_of(2)

        async def late(request: Received) -> Answer:
            if isinstance(request.message, FetchRequest):
                await asyncio.sleep(LATE_S)
            return await answer(request)

        leaders.servers[2].script = late
        admin = Admin(fetcher._cluster)
        log = PositionLog(fetcher._cluster, admin, None)
        assert len(await log.read({ZERO: 10, ONE: 10})) == 20
        assert (1, {0: 10}) in leaders.fetches
        began_s = time.monotonic()
        await admin.list_offsets({ZERO: LATEST_TIMESTAMP})
        assert time.monotonic() - began_s < 0.25

    reading(test)

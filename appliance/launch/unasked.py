"""Runs a container whose part is not in the configuration: logs this, and waits for SIGTERM.

Compose starts the same containers for every configuration. With one broker, an existing cluster or
no metrics, some of them have nothing to do. If they ended, compose would restart them forever, and
`docker compose up --wait` would call the whole mill broken.
"""

import asyncio
import logging
import signal
import time

from protocol.log import configure
from protocol.status import PartState, PartStatus
from protocol.status_http import StatusServer

logger = logging.getLogger(__name__)


def wait_unasked(name: str, host: str, port: int) -> None:
    """Answer health checks instead of the part until SIGTERM or SIGINT.

    Raises OSError when the address is not available.
    """
    configure(name, level=logging.INFO)
    asyncio.run(_serve(name, host, port))


async def _serve(name: str, host: str, port: int) -> None:
    started_at_ms = _now_ms()

    def status() -> PartStatus:
        return PartStatus(
            part=name,
            state=PartState.RUNNING,
            ready=True,
            started_at_ms=started_at_ms,
            now_ms=_now_ms(),
            details={"asked_for": False},
        )

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = StatusServer(host, port, status, lambda: b"")
    await server.start()
    logger.info(
        "the configuration has no part %s, so this container does nothing; if you add the "
        "part, run `docker compose restart %s`",
        name,
        name,
    )
    await ended.wait()
    await server.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

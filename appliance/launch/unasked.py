"""Runs a container whose part is not in the configuration: logs this, and waits for SIGTERM.

Compose starts the same containers for every configuration. With one broker, an existing cluster or
no metrics, some of them have nothing to do. If they ended, compose would restart them forever, and
`docker compose up --wait` would call the whole mill broken.

The container of a broker also marks its empty folder when the mill runs without it. So the broker
joins the cluster if the configuration asks for it later. No other container can do this, because
none sees the folder (decision 0248).
"""

import asyncio
import logging
import signal
import time
from collections.abc import Sequence

from appliance.config.containers import RECREATE
from appliance.errors import reason_of
from appliance.healthz import ask
from appliance.mill.parts import BROKER_PREFIX, Part, broker_names
from appliance.mill.settings import Mill
from appliance.mill.voter_folders import is_empty_folder, mark_newcomer
from protocol.log import configure
from protocol.status import PartState, PartStatus
from protocol.status_http import StatusServer

ASK_EVERY_S = 1.0

logger = logging.getLogger(__name__)


def wait_unasked(mill: Mill, name: str, port: int) -> None:
    """Answer health checks instead of the part until SIGTERM or SIGINT.

    Raises OSError when the address is not available.
    """
    configure(name, level=logging.INFO)
    asyncio.run(_serve(mill, name, port))


async def _serve(mill: Mill, name: str, port: int) -> None:
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
    server = StatusServer(mill.placement.bind_host, port, status, lambda: b"")
    await server.start()
    is_broker = name.startswith(BROKER_PREFIX)
    logger.info(
        "the configuration has no part %s, so this container does nothing; if you add the "
        "part, run `%s`",
        name,
        RECREATE if is_broker else f"docker compose restart {name}",
    )
    marking = asyncio.create_task(_mark_newcomer(mill, name)) if is_broker else None
    await ended.wait()
    if marking is not None:
        marking.cancel()
    await server.close()


async def _mark_newcomer(mill: Mill, name: str) -> None:
    """Mark an empty folder when a broker of the mill works, because its cluster exists then.

    A folder with data is left alone: its broker belongs to a cluster already. Before the cluster
    exists there must be no mark, because a broker with a mark takes no part in the birth.
    """
    number = int(name.removeprefix(BROKER_PREFIX))
    brokers = [part for part in mill.parts if part.name in broker_names(mill.config)]
    if not brokers or not is_empty_folder(mill.home, number):
        return
    while True:
        if await _works(brokers) and _is_marked(mill, name, number):
            break
        await asyncio.sleep(ASK_EVERY_S)
    logger.info("%s joins the cluster if the configuration asks for it later", name)


def _is_marked(mill: Mill, name: str, number: int) -> bool:
    """Mark the folder of a broker. Return False if the disk refuses it."""
    try:
        mark_newcomer(mill.home, number)
    except OSError as error:
        logger.warning("%s cannot mark its folder, and tries again: %s", name, reason_of(error))
        return False
    return True


async def _works(brokers: Sequence[Part]) -> bool:
    """Return whether one of the brokers says that it is healthy."""
    answers = await asyncio.gather(*(asyncio.to_thread(ask, one.address) for one in brokers))
    return any(is_healthy for is_healthy, _ in answers)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

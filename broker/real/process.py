"""The process around a broker, from its settings to its exit code.

The exit code is 0 after a clean stop, 2 for wrong settings, and 1 if anything else prevents the
broker from running. A failed fsync ends the process at once without a clean stop. So does any bug
that reaches the event loop or the top of a thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

from broker.config import BrokerConfig
from broker.metadata.records import UnknownMetadataRecord
from broker.node.broker import Broker
from broker.node.status import BrokerStatus
from broker.real.certificates import Certificates
from broker.real.link_certificates import LinkCertificates
from broker.real.world import LoopWorld
from broker.settings import ConfigError
from broker.storage.disk import OsDisk
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.storage.open_report import OpenReport
from broker.world import Clock, PortTaken
from protocol.descriptors import raise_descriptor_limit
from protocol.errors import WireError
from protocol.log import configure, fields
from protocol.status import PartState
from protocol.status_http import StatusServer
from protocol.wire import frame
from protocol.wire.limits import LIMITS

logger = logging.getLogger(__name__)

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_SETTINGS = 2

HAND_OVER_MS_MAX = 25_000
"""The longest time in milliseconds for which a stop waits until other brokers lead this broker's
partitions."""

STOP_MS_MAX = 5_000
"""The longest time in milliseconds for which a stop waits until answers are sent. No data is lost
if the time runs out."""

STOP_POLL_S = 0.01
DESCRIPTORS_WANTED = 65_536

CANNOT_RUN = (
    PortTaken, FolderError, CorruptionError, DiskError, UnknownMetadataRecord, WireError
)  # fmt: skip
"""The errors that an operator must handle. Any other exception that ends the process is a bug."""

SWITCH_INTERVAL_S = 0.0005
"""The time in seconds after which a busy event loop yields to a waiting thread, for example one
that fsyncs a log.

Python's own default is 5 ms.
"""

SETTINGS_BYTES_MAX = 4 << 20

IS_COMPILED = not frame.__file__.endswith(".py")
"""True if the broker runs code that `make native` compiled. Its log says so."""


def read_settings(descriptor: int) -> dict[str, Any]:
    """Read the JSON object from an inherited descriptor, to its end. Raises ConfigError if it is
    invalid."""
    with os.fdopen(descriptor, "rb") as source:
        text = source.read(SETTINGS_BYTES_MAX + 1)
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError([("settings", str(error), "one JSON object")]) from error
    if not isinstance(raw, dict):
        raise ConfigError([("settings", type(raw).__name__, "one JSON object")])
    return raw


def main(descriptor: int) -> int:
    """Run one broker until it is stopped. Return the exit code."""
    configure("broker")
    try:
        raw = read_settings(descriptor)
        config = BrokerConfig.from_json(raw)
    except ConfigError as error:
        logger.error(
            "the broker cannot start, because its settings are invalid", extra=fields(faults=error)
        )
        return EXIT_SETTINGS
    configure(config.part)
    _limit_reading(config)
    raise_descriptor_limit(DESCRIPTORS_WANTED)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    threading.excepthook = _thread_died
    try:
        certificates = Certificates(config, config.tls) if config.tls is not None else None
        links = None
        if config.link_tls is not None:
            links = LinkCertificates(config.link_tls, config.cluster_id, config.node_id)
        return _new_loop_runner().run(run(config, certificates, links))
    except ConfigError as error:
        logger.error(
            "the broker cannot start, because its settings are invalid", extra=fields(faults=error)
        )
        return EXIT_SETTINGS
    except CANNOT_RUN as error:
        logger.error("the broker cannot run", extra=fields(reason=error))
        return EXIT_FAILED


def _limit_reading(config: BrokerConfig) -> None:
    """Set the limits for decoding. Call this before the first message is decoded."""
    LIMITS.tag_count_max = config.max_request_tagged_fields
    LIMITS.number_count_max = config.max_request_numbers
    LIMITS.element_count_max = config.max_request_elements
    LIMITS.decompressed_bytes_max = config.max_decompressed_batch_bytes


def _new_loop_runner() -> asyncio.Runner:
    """Return a runner with uvloop's loop if uvloop is installed, else with asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def die(reason: str) -> NoReturn:
    """End the process at once, without a clean stop. The next start recovers the logs."""
    logger.critical(
        "the broker ends without a clean stop; the next start recovers its logs",
        extra=fields(reason=reason),
    )
    sys.stderr.flush()
    os._exit(EXIT_FAILED)


def _thread_died(args: threading.ExceptHookArgs) -> None:
    logger.critical(
        "unhandled exception in a thread; the broker process ends", exc_info=args.exc_value
    )
    die(f"exception in thread {args.thread.name if args.thread else '?'}: {args.exc_value!r}")


def _loop_failed(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if error is None or isinstance(error, OSError):
        logger.warning(
            "the event loop reported an error",
            extra=fields(message=context.get("message"), error=error),
        )
        return
    logger.critical(
        "unhandled exception in the event loop; the broker process ends", exc_info=error
    )
    die(f"unhandled exception in the event loop: {error!r}")


async def run(
    config: BrokerConfig, certificates: Certificates | None, links: LinkCertificates | None
) -> int:
    """Start the broker, serve until SIGTERM or SIGINT, and stop. Return the exit code."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_loop_failed)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    world = LoopWorld(
        loop,
        die,
        config.socket_request_max_bytes,
        config.connection_max_unread_bytes,
        certificates,
        links,
    )
    clock = world.clock
    started_ms = clock.monotonic_ms()
    broker = Broker(config, world, OsDisk())
    status = BrokerStatus(broker, clock.now_ms(), world.connection_problems)
    server = StatusServer(config.status_host, config.status_port, status.status, status.metrics)
    await _start_status(server, config)
    report = await _recover(broker, stop)
    if report is None:
        logger.info(
            "stopped before the recovery of the logs was complete",
            extra=fields(log_dir=config.log_dir),
        )
        return EXIT_CLEAN
    if await _start(broker, report, stop):
        _say_ready(broker, report, clock.monotonic_ms() - started_ms, server.port)
        status.state = PartState.RUNNING
        # The objects created so far exist as long as the process, so exclude them from garbage
        # collections.
        gc.collect()
        gc.freeze()
        await stop.wait()
    status.state = PartState.STOPPING
    await _hand_over(broker)
    await _stop(broker, clock)
    world.stop()
    await server.close()
    return EXIT_CLEAN


async def _start(broker: Broker, report: OpenReport, stop: asyncio.Event) -> bool:
    """Start the broker. Return False if it was asked to stop before it was ready."""
    is_ready = asyncio.Event()
    broker.start(report, is_ready.set)
    if is_ready.is_set():
        return True
    waiting = {asyncio.create_task(one.wait()) for one in (is_ready, stop)}
    _, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in left:
        one.cancel()
    return is_ready.is_set()


async def _recover(broker: Broker, stop: asyncio.Event) -> OpenReport | None:
    """Open the logs in a thread. Return None if the broker was asked to stop first. In this case
    the next start recovers the logs."""
    report: asyncio.Future[OpenReport] = asyncio.get_running_loop().create_future()
    broker.worker.run(broker.recover, report.set_result, report.set_exception)
    stopped = asyncio.create_task(stop.wait())
    either: set[asyncio.Future[Any]] = {report, stopped}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    return await report if report.done() else None


async def _start_status(server: StatusServer, config: BrokerConfig) -> None:
    try:
        await server.start()
    except OSError as error:
        from broker.real.listening import taken_text

        raise PortTaken(taken_text("status", config.status_host, config.status_port)) from error


async def _hand_over(broker: Broker) -> None:
    """Wait until other brokers have taken over this broker's leaderships, within the time limit."""
    is_done = asyncio.Event()
    broker.hand_over(is_done.set)
    try:
        await asyncio.wait_for(is_done.wait(), HAND_OVER_MS_MAX / 1_000)
    except TimeoutError:
        logger.warning(
            "stopping, although other brokers have not taken over all leaderships in time",
            extra=fields(waited_ms=HAND_OVER_MS_MAX),
        )


async def _stop(broker: Broker, clock: Clock) -> None:
    broker.stop_serving()
    loop = asyncio.get_running_loop()
    quiet: asyncio.Future[None] = loop.create_future()
    deadline_ms = clock.monotonic_ms() + STOP_MS_MAX

    def look() -> None:
        if broker.is_quiet or clock.monotonic_ms() >= deadline_ms:
            quiet.set_result(None)
        else:
            loop.call_later(STOP_POLL_S, look)

    look()
    await quiet
    broker.close()


def _say_ready(broker: Broker, report: OpenReport, took_ms: int, status_port: int) -> None:
    config = broker.config
    for topic_partition, count, reason in report.truncated:
        logger.warning(
            "the log ended with an incomplete or damaged batch, and was truncated before it",
            extra=fields(partition=topic_partition, bytes=count, reason=reason),
        )
    for topic_partition, reason in report.offline.items():
        logger.error(
            "a log cannot be opened, so its partition is offline on this broker",
            extra=fields(partition=topic_partition, reason=reason),
        )
    listeners = ",".join(
        f"{name}={address.host}:{address.port}" for name, address in config.listeners.items()
    )
    logger.info(
        "ready",
        extra=fields(
            node_id=config.node_id,
            flush=flush_mode(broker.settings.config),
            listeners=listeners,
            status=f"{config.status_host}:{status_port}",
            log_dir=config.log_dir,
            last_stop="clean" if report.was_clean else "not clean, or none",
            partitions=sum(1 for _ in broker.replicas),
            truncated_logs=len(report.truncated),
            offline_logs=len(report.offline),
            start_ms=took_ms,
            compiled=IS_COMPILED,
        ),
    )


def flush_mode(config: BrokerConfig) -> str:
    """Return `ack` if batches are fsynced before they are acknowledged by default, else
    `interval`."""
    return "ack" if config.log_config().is_flushed_before_ack else "interval"

"""`python -m monitor --settings-fd N`: the monitor's process."""

import argparse
import gc
import json
import logging
import os
import random
import signal
import sqlite3
import sys
import time
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from monitor.admin.operating import Operator
from monitor.alerts.core import Alerts
from monitor.alerts.notifier import Notifier
from monitor.alerts.webhook import Webhook
from monitor.asking.browse import Browser
from monitor.asking.counts import Counts
from monitor.asking.poller import Poller
from monitor.asking.preview import Detector
from monitor.config.settings import MonitorSettings
from monitor.history.recorder import Recorder, open_recorder
from monitor.http import create_app
from monitor.sampling.clusters import clusters_of
from monitor.sampling.sampler import Sampler
from monitor.serving import PageServer
from monitor.tls import PageCertificate, UnusableCertificate
from protocol.log import configure, fields
from sinks.read_counts import CountsReader

logger = logging.getLogger("monitor")

COLLECT_AFTER = 10_000
"""The number of new objects after which Python's garbage collector runs."""


def clock_ms() -> int:
    """Return the current time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def counts_of(settings: MonitorSettings) -> Counts | None:
    """Return the reader of the counts; None if the mill has no MySQL."""
    mysql = settings.sinks.mysql if settings.sinks is not None else None
    return None if mysql is None else Counts(partial(CountsReader, mysql), clock_ms)


def operator_of(settings: MonitorSettings) -> Operator | None:
    """Return the operator that changes the cluster; None if changes are switched off."""
    if not settings.section.admin or (settings.token is None and settings.login is None):
        return None
    return Operator(settings.entry, settings.stream_group)


def browser_of(settings: MonitorSettings) -> Browser | None:
    """Return the reader of records; None if the page shows no records."""
    if not settings.section.messages:
        return None
    return Browser(settings.entry)


def notifier_of(settings: MonitorSettings, alerts: Alerts) -> Notifier | None:
    """Return the notifier of the webhook; None if the configuration names no webhook."""
    section = settings.section.alerts
    if section.webhook is None:
        return None
    token = None if section.token is None else section.token.get_secret_value()
    webhook = Webhook(section.webhook.get_secret_value(), token, timeout_s=section.timeout_s)
    return Notifier(
        alerts,
        webhook.send,
        repeat_ms=section.repeat_ms,
        page=settings.page or f"http://{settings.section.listen}",
        where=webhook.host,
        chance=random.Random(),
    )


def recorder_of(settings: MonitorSettings, alerts: Alerts) -> tuple[Recorder | None, str | None]:
    """Open the history and restore its alerts.

    Return its recorder, or None and the reason why the history cannot be opened. The monitor works
    without a history, because people need its pages most when a disk is full.
    """
    section, folder = settings.section, Path(settings.data_dir)
    recorder = None
    try:
        recorder = open_recorder(folder, section.retain_ms, settings.stream_group)
        alerts.restore(recorder.store.alerts(), clock_ms())
    except (OSError, sqlite3.Error) as error:
        logger.error("the history cannot be opened", extra=fields(folder=folder, why=error))
        if recorder is not None:
            recorder.store.close()
        again = "`./millrace restart monitor` tries again"
        return None, f"the history in {folder} cannot be opened: {error}; {again}"
    return recorder, None


def rest_what_stays() -> None:
    """Make Python's garbage collector run rarely, and exclude the objects that exist by now.

    In a large cluster a polling cycle makes a hundred thousand objects without reference cycles. At
    Python's default threshold the garbage collector took a third of the processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return 0 if stopped, 1 if sampling failed, 2 for wrong
    settings.
    """
    arguments = argparse.ArgumentParser(prog="python -m monitor")
    arguments.add_argument("--settings-fd", type=int, required=True)
    settings_fd: int = arguments.parse_args().settings_fd
    with os.fdopen(settings_fd, encoding="utf-8") as stream:
        text = stream.read()
    try:
        settings = MonitorSettings.model_validate(json.loads(text))
    except (ValidationError, ValueError) as error:
        sys.stderr.write(f"monitor: settings: {error}\n")
        return 2
    configure(settings.part)
    try:
        certificate = certificate_of(settings)
    except UnusableCertificate as error:
        sys.stderr.write(f"monitor: the certificate of the page cannot be used: {error}\n")
        return 2
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    host, port = settings.address
    source = Poller(
        settings.entry,
        settings.parts,
        settings.sinks,
        settings.supervisor,
        disks={"data": Path(settings.data_dir)},
        stream_group=settings.stream_group,
    )
    alerts = Alerts(settings.section.alerts.all_rules())
    recorder, problem = recorder_of(settings, alerts)
    sampler = Sampler(settings, source, clock_ms, recorder, alerts, notifier_of(settings, alerts))
    sampler.history_problem = problem
    failures: list[BaseException] = []

    def stop(error: BaseException) -> None:
        logger.critical("the sampler failed, so the monitor stops", exc_info=error)
        failures.append(error)
        server.should_exit = True

    app = create_app(
        settings,
        sampler,
        started_at_ms=clock_ms(),
        clock_ms=clock_ms,
        on_failure=stop,
        counts=counts_of(settings),
        browser=browser_of(settings),
        previews=Detector(settings.preview) if settings.preview is not None else None,
        orders=operator_of(settings),
        clusters=clusters_of(settings, clock_ms),
        certificate=certificate,
    )
    logger.info("the monitor serves its pages", extra=fields(address=f"{host}:{port}"))
    server = _server(app, settings, certificate)
    rest_what_stays()
    # After a signal has stopped uvicorn, uvicorn restores the previous handler and raises the
    # signal again. A handler that does nothing lets `main` return its own exit code.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    server.run()
    logger.info("the monitor stopped")
    return 1 if failures else 0


def certificate_of(settings: MonitorSettings) -> PageCertificate | None:
    """Read the page's certificate; None if the page has none. Raise UnusableCertificate."""
    if settings.tls is None:
        return None
    return PageCertificate(settings.tls, settings.names)


def _server(
    app: FastAPI, settings: MonitorSettings, certificate: PageCertificate | None
) -> uvicorn.Server:
    host, port = settings.address
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        server_header=False,
        # With a login, `monitor.login.gate` decides which proxies are believed.
        proxy_headers=settings.login is None,
    )
    name = settings.names[0] if settings.names else host
    return PageServer(
        config,
        app,
        own_socket=settings.own_socket,
        serves_own=settings.login is not None,
        certificate=certificate,
        name=name,
    )


if __name__ == "__main__":
    sys.exit(main())

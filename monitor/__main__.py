"""`python -m monitor --settings-fd N`: the monitor's process."""

import argparse
import json
import logging
import os
import sys
import time

import uvicorn
from pydantic import ValidationError

from monitor.collect import Collector
from monitor.config import MonitorSettings
from monitor.http import create_app
from monitor.sampler import Sampler
from protocol.log import configure, fields

logger = logging.getLogger("monitor")


def clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def main() -> int:
    """Serve until SIGTERM or SIGINT; 0 when stopped, 2 for wrong settings."""
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
    host, port = settings.address
    sampler = Sampler(settings, Collector(settings.bootstrap_servers, settings.parts), clock_ms)
    app = create_app(settings, sampler, started_at_ms=clock_ms(), clock_ms=clock_ms)
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
    )
    logger.info("serving", extra=fields(address=f"{host}:{port}"))
    uvicorn.Server(config).run()
    logger.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())

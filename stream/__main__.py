"""`python -m stream --settings-fd N [--check | --plan | --dry-run]`.

Without an option it runs the stream. `--check` prints as JSON the faults that Spark finds in the
expressions. `--plan` prints how each metric is compiled. `--dry-run` prints what the metrics would
count of the records on standard input.
"""

import argparse
import gc
import json
import logging
import os
import signal
import sys
import threading
from functools import partial

from pydantic import ValidationError

from protocol.log import configure, fields
from protocol.units import parse_duration_ms
from stream.config.settings import StreamSettings

# The number of new objects that triggers Python's search for reference cycles. A live batch creates
# about ten thousand objects without cycles, and the remembered cells are many more. With the
# default of 700, this search took a third of the sinks' time, so the number is raised.
GC_THRESHOLDS = (100_000, 20, 100)

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Read the settings and run the chosen mode. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stream", description=__doc__)
    parser.add_argument("--settings-fd", type=int, required=True, metavar="N")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="show faults of expressions, as JSON")
    modes.add_argument("--plan", action="store_true", help="show how metrics are compiled")
    modes.add_argument("--dry-run", action="store_true", help="show what records would count")
    options = parser.parse_args(arguments)
    configure("stream")
    for chatter in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(chatter).setLevel(logging.CRITICAL + 1)
    try:
        settings = read_settings(options.settings_fd)
    except ValidationError as error:
        for fault in error.errors():
            key = ".".join(str(step) for step in fault["loc"])
            logger.error("a setting is not valid", extra=fields(key=key, fault=fault["msg"]))
        return 2
    if options.check:
        return check(settings)
    if options.plan:
        from stream.describe import describe_plan

        sys.stdout.write(describe_plan(settings.section))
        return 0
    if options.dry_run:
        return dry_run(settings)
    return run(settings)


def read_settings(descriptor: int) -> StreamSettings:
    """Read the settings from an inherited descriptor, to its end."""
    with os.fdopen(descriptor, "rb") as file:
        return StreamSettings.model_validate_json(file.read())


def run(settings: StreamSettings) -> int:
    """Run the stream until SIGTERM or SIGINT."""
    from sinks.errors import SchemaTooNew, SchemaTooOld
    from stream.job import StreamJob
    from stream.lock import StreamRunning
    from stream.state import StreamState
    from stream.status_server import StatusThread

    gc.set_threshold(*GC_THRESHOLDS)
    section = settings.section
    names = [metric.name for metric in section.metrics]
    state = StreamState(settings.part, names, parse_duration_ms(section.trigger))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    serving = StatusThread(settings.status, state)
    try:
        serving.start()
    except OSError as error:
        address = f"{settings.status.host}:{settings.status.port}"
        logger.error("cannot listen for status requests", extra=fields(address=address, why=error))
        return 2
    try:
        return StreamJob(settings, state, stop).run()
    except (StreamRunning, SchemaTooNew, SchemaTooOld) as error:
        logger.error("%s", error)
        return 2
    finally:
        serving.close()


def check(settings: StreamSettings) -> int:
    """Print the faults of expressions as a JSON list, and return 2 if there are any; else print
    notes."""
    from stream.plan_check import check_configuration, notes_on
    from stream.spark import java_classes
    from stream.spark.session import start_session

    session = start_session(settings, is_brief=True)
    with java_classes.borrowed(session, settings.data_dir):
        faults = check_configuration(session, settings.section)
        notes = [] if faults else notes_on(settings.section)
    told = [fault.to_json() for fault in (*faults, *notes)]
    sys.stdout.write(json.dumps(told) + "\n")
    return 2 if faults else 0


def dry_run(settings: StreamSettings) -> int:
    """Print what the metrics would count of the records on standard input."""
    from stream.dry_run import read_samples, run_dry
    from stream.spark.masters import MasterAway, ask_masters
    from stream.spark.session import start_session

    try:
        ask_masters(settings.section.master)
        samples = read_samples(sys.stdin.read())
        run_dry(partial(start_session, is_brief=True), settings, samples, sys.stdout.write)
    except MasterAway as error:
        logger.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`up --foreground`: runs the mill until the command ends, and ends the command when the mill
stops."""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from appliance.cli.log_command import follow_logs, log_files
from appliance.machine.notify import service_manager
from appliance.mill.home import Home
from appliance.operate import lifecycle
from appliance.output import CommandError, say


def stay_in_front(home: Home, start: Callable[[], None], stop: Callable[[], None]) -> None:
    """Start the mill and print its logs until it is stopped; SIGTERM and Ctrl-C stop it.

    A service manager stops the mill with SIGTERM, so the command then ends with code 0. Ctrl-C is a
    KeyboardInterrupt. Raises what `start` raises, and CommandError when the supervisor has died. No
    process remains that was not running before.
    """
    tell = service_manager(os.environ)
    # If a terminal or a service manager ends this process, stop the mill too.
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        _start(home, start, stop)
        tell("READY=1")
        say("Ctrl-C stops the mill")
        follow_logs(
            log_files(home, None),
            lines=0,
            goes_on=lambda: lifecycle.is_running(home),
            find=partial(log_files, home, None),
        )
    except _Terminated:
        _stop(tell, stop)
        return
    except KeyboardInterrupt:
        _stop(tell, stop)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    # A supervisor that was asked to stop removes its file.
    if home.pid_file.exists():
        stop()
        raise CommandError(
            "the supervisor has died; look for the reason in data/logs/supervisor.log, then "
            "run `./millrace up`"
        )
    say("the mill was stopped by another command")


class _Terminated(KeyboardInterrupt):
    """Raised at SIGTERM. It is not an Exception, so that no handler treats it as an error."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


def _stop(tell: Callable[[str], None], stop: Callable[[], None]) -> None:
    tell("STOPPING=1")
    stop()


def _start(home: Home, start: Callable[[], None], stop: Callable[[], None]) -> None:
    did_run = lifecycle.is_running(home)
    try:
        start()
    except KeyboardInterrupt:
        raise
    except Exception:
        if not did_run and lifecycle.is_running(home):
            stop()
        raise

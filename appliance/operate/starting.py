"""Start the supervisor of a mill in the background, after all checks have passed."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from appliance.checks import hosts
from appliance.checks.startup import Check, before_start
from appliance.config.load import digest_of
from appliance.machine.files import write_atomically
from appliance.mill.certificates import make_needed
from appliance.mill.home import EDITED_VARIABLE
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.init import renew_readers
from appliance.mill.settings import Mill
from appliance.operate.lifecycle import POLL_S, StartFailed, end_leftovers, snapshot
from appliance.supervisor import control
from appliance.supervisor.logs import open_log, tail

SUPERVISOR_START_S = 20.0


class StartRefused(Exception):
    """Raised when the mill cannot be started. `checks` has the reasons, each with its remedy."""

    def __init__(self, checks: list[Check]) -> None:
        self.checks = checks
        super().__init__("\n".join(str(check) for check in checks))


def start(mill: Mill, data: bytes) -> None:
    """Start the supervisor in the background. Raises StartRefused before anything has changed.

    `data` is the content of the file from which `mill` was made after the checks. The parts start
    with exactly this content. If the file is saved in the meantime, the supervisor handles it as a
    change.
    """
    home = mill.home
    # Parts without a supervisor still use ports, so end them before the ports are checked.
    end_leftovers(home)
    if faults := [*hosts.refusals(mill), *before_start(mill)]:
        raise StartRefused(faults)
    initialise_mill(home, mill.config, mill.placement)
    make_needed(home, mill.config, datetime.now(UTC))
    renew_readers(home, mill.config.network.open)
    home.run.mkdir(parents=True, exist_ok=True)
    for name in ("access", "json", "text"):
        (home.folder / "watched" / name).mkdir(parents=True, exist_ok=True)
    write_atomically(home.started_config, data)
    log = open_log(home.part_log("supervisor"))
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "supervise", "--digest", digest_of(data)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(home.code),
                "PYTHONSAFEPATH": "1",
                "MILLRACE_HOME": str(home.folder),
                "MILLRACE_CONFIG": str(home.started_config),
                EDITED_VARIABLE: str(home.config_file),
            },
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + SUPERVISOR_START_S
    while time.monotonic() < deadline:
        try:
            snapshot(home, 2.0)
        except control.NoSupervisor:
            if process.poll() is not None:
                break
            time.sleep(POLL_S)
        else:
            # The supervisor continues after this process has ended. Mark it as ended, because
            # Python would otherwise warn that nothing waited for it.
            process.returncode = 0
            return
    lines = "\n".join(f"  {line}" for line in tail(home.part_log("supervisor"), 8))
    raise StartFailed(f"the supervisor did not start; data/logs/supervisor.log ends with\n{lines}")

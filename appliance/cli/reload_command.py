"""`millrace config reload`: apply a saved file at once, and show what it changes."""

import hashlib
import time
from typing import TYPE_CHECKING

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import waiting
from appliance.output import CommandError, Exit, tell
from appliance.supervisor.effects import PartPhase
from protocol import control
from protocol.status import StatusUnavailable, fetch_status

if TYPE_CHECKING:
    from appliance.mill.settings import Mill

AT_WORK = (PartPhase.STARTING, PartPhase.HEALTHY, PartPhase.UNHEALTHY)
TAKEN_OVER_S = 20.0
LOOK_EVERY_S = 0.1
STATUS_TIMEOUT_S = 2.0


def reload(as_json: EnvelopeOption = False) -> None:
    """Let the running mill apply the saved file now, and show what changed.

    A running mill checks the file automatically, a second after it was saved. Exit code 2 for a
    file with faults, 3 for changes that need `up --apply`.
    """
    from appliance.config.load import load
    from appliance.supervisor.changes import changed_words

    mill, loaded = context.load_mill()
    home = mill.home
    if mill.placement.in_containers:
        raise CommandError(
            "parts in containers check the file automatically: `docker compose ps` and the page"
            " show what they could not apply",
            Exit.CONDITION,
        )
    try:
        parts = control.ask(home.socket, {"command": "status"})["parts"]
        started = load(home.started_config, home.folder).config
        answer = control.ask(home.socket, {"command": "look"})
    except control.NoSupervisor as error:
        raise CommandError(
            f"{home.config_file} has no faults, but the mill does not run: start it with "
            "`./millrace up`",
            Exit.CONDITION,
        ) from error
    if answer["config_problem"]:
        raise CommandError(str(answer["config_problem"]), Exit.CONDITION)
    words = changed_words(started, loaded.config)
    # The collector checks the file itself, and the supervisor can have applied it before this
    # command.
    if any(row["part"] == "collector" and row["state"] in AT_WORK for row in parts):
        with waiting("waiting for the collector to apply the inputs"):
            _wait_for_the_collector(mill)
    last = "the changes are applied" if words else "the file has not changed since the last time"
    tell("\n".join([*words, last]), "reload/1", {"changes": list(words)}, as_json)


def _wait_for_the_collector(mill: "Mill") -> None:
    """Wait until the collector reports that it uses this file. Raises CommandError."""
    part = mill.part("collector")
    if part is None:
        return
    wanted = hashlib.sha256(mill.home.config_file.read_bytes()).hexdigest()
    deadline_s = time.monotonic() + TAKEN_OVER_S
    why = "the collector does not answer"
    while time.monotonic() < deadline_s:
        try:
            status = fetch_status(part.host, part.port, STATUS_TIMEOUT_S)
        except StatusUnavailable as error:
            why = str(error)
        else:
            if status.details.get("config_sha256") == wanted:
                return
            problems = [problem.text for problem in status.problems if problem.code == "config"]
            if problems:
                raise CommandError(problems[0], Exit.CONDITION)
            why = "the collector still uses the previous configuration"
        time.sleep(LOOK_EVERY_S)
    raise CommandError(
        f"the collector has not applied the inputs within {TAKEN_OVER_S:.0f} s: {why}",
        Exit.CONDITION,
    )

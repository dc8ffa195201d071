"""`millrace broker move`: move a broker to another data folder, or to other ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.checks.startup import FREE_BYTES_MIN
from appliance.cli import context
from appliance.cli.broker_removal import BrokerArgument
from appliance.cli.cluster import (
    TIMEOUT_S,
    DryRunOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    YesOption,
    confirm,
    with_cluster,
)
from appliance.cli.leaving import moving_brokers
from appliance.cli.membership_view import show_steps, step_progress
from appliance.cli.needed import refuse_needed_broker
from appliance.cli.other_hosts import refuse_on_hosts
from appliance.cli.progress import waiting
from appliance.config.load import LoadedConfig
from appliance.machine.files import locked
from appliance.mill.moved_folder import FolderMove, unfinished, wanted_move
from appliance.mill.parts import BROKER_PREFIX, broker_ids, voters
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say
from appliance.supervisor import control
from appliance.supervisor.effects import PartPhase

if TYPE_CHECKING:
    from appliance.cli.membership_view import StepProgress
    from appliance.kafka.broker_move_plan import MovePlace
    from appliance.kafka.disk_plan import DiskState
    from appliance.kafka.membership_steps import MembershipStep

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Its new data folder, also on another disk."),
]

LOCK_FILE = "broker-move.lock"

NOT_IN_CONTAINERS = (
    "`broker move` works only without containers: the compose file names the ports and the volume"
    " of each broker"
)


def move(
    broker: BrokerArgument,
    folder: FolderOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Move a broker to another data folder, or to the ports that the file has for it, after asking.

    The same command continues where it was interrupted. Ctrl-C ends only the following.
    """
    from appliance.kafka import disk_replacement

    if context.in_containers():
        raise CommandError(NOT_IN_CONTAINERS, Exit.CONDITION)
    refuse_on_hosts("broker move")
    with _no_other_move():
        begun = _unfinished_move(broker, folder)
        if not lifecycle.is_running(context.home()):
            _complete_without_mill(begun, dry_run)
            return
        here = _look_here(broker, folder, begun)
        state = with_cluster(None, timeout, lambda asked: disk_replacement.look(asked, broker))
        steps = _steps(here, state)
        show_steps(
            steps,
            "broker-move/1",
            output,
            as_json,
            nothing=f"broker {broker} works in its folder and at the ports of the file: nothing to"
            " move",
        )
        lines = _remarks(here, state)
        if dry_run:
            say("\n".join([*lines, "nothing was changed"]))
            return
        if steps:
            confirm(lines, yes)
            _proceed(here, state, timeout)
        if here.begun is not None:
            here.begun.finish()


@contextmanager
def _no_other_move() -> Iterator[None]:
    """Refuse a second `broker move` of this mill with CommandError. Two of them could copy the same
    folder, or stop two brokers that are needed."""
    folder = context.home().run
    if not folder.is_dir():
        # The mill was never started.
        yield
        return
    with locked(folder / LOCK_FILE) as is_alone:
        if not is_alone:
            raise CommandError(
                "another `broker move` of this mill is running: brokers move one at a time, so wait"
                " until it has ended",
                Exit.CONDITION,
            )
        yield


@dataclass(frozen=True, slots=True)
class _Here:
    """The broker as this machine has it."""

    node_id: int
    mill: Mill
    loaded: LoadedConfig
    place: "MovePlace"
    link: Path
    begun: FolderMove | None
    """The move of the folder, which can be done already and not finished."""

    @property
    def part(self) -> str:
        """The name of the broker's part."""
        return f"{BROKER_PREFIX}{self.node_id}"

    def is_blank(self, state: "DiskState") -> bool:
        """Return True if the broker is away and has no data any more."""
        has_data = self.link.is_dir() and any(self.link.iterdir())
        if self.begun is not None:
            has_data = self.begun.has_data
        return not has_data and not state.is_in_service


def _unfinished_move(broker: int, folder: Path | None) -> FolderMove | None:
    """Return the move of the broker's folder that was begun and not finished; None if there is
    none. Raises CommandError if it goes to another place than `folder`, and MoveFault."""
    link = context.home().part_data(f"{BROKER_PREFIX}{broker}")
    begun = unfinished(link)
    if begun is not None and folder is not None and _absolute(folder) != begun.target:
        raise CommandError(
            f"a move of {link} to {begun.target} was interrupted: run the command with that folder,"
            " or without --folder, first",
            Exit.CONDITION,
        )
    return begun


def _complete_without_mill(begun: FolderMove | None, dry_run: bool) -> None:
    """Complete the move of a folder, because the mill does not start before. The interrupted
    command has asked the user. Raises CommandError if there is no such move, and MoveFault."""
    if begun is None or begun.is_placed:
        raise CommandError("the mill does not run: `./millrace up` first", Exit.CONDITION)
    if dry_run:
        say(f"would move {begun.source} to {begun.target}\nnothing was changed")
        return
    begun.carry_out()
    say(
        f"the folder is at {begun.target}; run `./millrace up`, and then the same command again to"
        " continue the move"
    )


def _look_here(broker: int, folder: Path | None, begun: FolderMove | None) -> _Here:
    """Return what the file and the folders say, while the mill runs. Raises CommandError if the
    broker cannot move, and MoveFault."""
    from appliance.kafka.broker_move_plan import MovePlace

    home, part = context.home(), f"{BROKER_PREFIX}{broker}"
    link = home.part_data(part)
    started = context.mill_as_it_runs()
    wanted, loaded = context.load_mill()
    _refuse_without_others(broker, started, link)
    _refuse_other_changes(broker, started, wanted)
    if begun is None and folder is not None:
        begun = wanted_move(link, _absolute(folder), FREE_BYTES_MIN)
    has_new_ports = broker in moving_brokers(started.config, wanted.config)
    states = {one["part"]: one["state"] for one in lifecycle.snapshot(home)["parts"]}
    place = MovePlace(
        # Other changes of the file have no effect before `up --apply`.
        address=_address(wanted if has_new_ports else started, broker),
        runs=states.get(part) not in (PartPhase.STOPPED, None),
        folder=None if begun is None or begun.is_placed else (begun.source, begun.target),
        has_new_ports=has_new_ports,
    )
    return _Here(broker, wanted, loaded, place, link, begun)


def _absolute(folder: Path) -> Path:
    """Return a folder of the command line. A relative one begins at the current folder."""
    whole = Path.cwd() / folder.expanduser()
    return whole.parent.resolve() / whole.name


def _address(mill: Mill, broker: int) -> str:
    host, port = voters(mill.config, mill.placement)[broker]
    return f"{host}:{port}"


def _refuse_without_others(broker: int, started: Mill, link: Path) -> None:
    """Raise CommandError unless the broker is one of several of this mill."""
    ids = broker_ids(started.config)
    if broker not in ids:
        known = ", ".join(map(str, ids)) or "none, because it uses another cluster"
        raise CommandError(f"this mill has no broker {broker}; it has {known}", Exit.NOT_FOUND)
    if len(ids) == 1:
        raise CommandError(
            "this mill has one broker, so no other one works while it moves: change the file, and"
            " run `./millrace up --apply`; for another folder `./millrace down`, and make"
            f" {link} a link to the folder",
            Exit.CONDITION,
        )


def _refuse_other_changes(broker: int, started: Mill, wanted: Mill) -> None:
    """Raise CommandError if the file has more changes than other ports of this broker."""
    others = [one for one in moving_brokers(started.config, wanted.config) if one != broker]
    if others:
        raise CommandError(
            f"the file has other ports for broker {', '.join(map(str, others))} too: brokers move"
            " one at a time, so write one of them and move it first",
            Exit.CONDITION,
        )
    if broker not in moving_brokers(started.config, wanted.config):
        return
    places = {"places": started.config.ports.places}
    ports = wanted.config.ports.model_copy(update=places)
    if wanted.config.model_copy(update={"ports": ports}) != started.config:
        raise CommandError(
            "the file has other changes besides `ports.places`: take them back, or apply them with"
            " `./millrace up --apply` before",
            Exit.CONDITION,
        )


def _steps(here: _Here, state: "DiskState") -> "list[MembershipStep]":
    """Return the steps that are left. Raises CommandError if the broker cannot move."""
    from appliance.kafka.broker_move_plan import refuse_move, steps_to_move

    if here.is_blank(state):
        return _steps_with_empty_folder(here, state)
    if here.place.must_move:
        refuse_move(state)
        refuse_needed_broker(context.home(), here.part, "moved", has_force=False)
    return steps_to_move(state, here.place)


def _steps_with_empty_folder(here: _Here, state: "DiskState") -> "list[MembershipStep]":
    """Return the steps of a replaced disk, with the start at the new place."""
    from appliance.kafka.disk_plan import refuse_replacement, steps_to_replace
    from appliance.kafka.membership_steps import StartBroker, StartMoved

    refuse_replacement(state)
    started = StartMoved(here.node_id, here.place.address, is_empty=True)
    return [started if isinstance(step, StartBroker) else step for step in steps_to_replace(state)]


def _remarks(here: _Here, state: "DiskState") -> list[str]:
    """Return the sentences before the question."""
    from appliance.kafka.reassign import named_partitions

    lines = []
    begun = here.begun
    if begun is not None and begun.source.exists() and begun.is_on_another_disk:
        lines.append("the folder is copied to another disk, and deleted here in the end")
    if here.place.has_new_ports:
        lines.append("the collector, the stream and the monitor restart, to know the new address")
    if state.lost:
        what = "lost with the folder" if here.is_blank(state) else "not available in the meantime"
        lines.append(f"{what}, because there is no other replica: {named_partitions(state.lost)}")
    if here.place.must_move and len(state.voters) == 3:
        lines.append("only two brokers vote in the meantime: do not stop either of them")
    return lines


def _proceed(here: _Here, state: "DiskState", timeout: float) -> None:
    """Take the steps, and say how it ended. Raises CommandError, ApiError and ClientError."""
    try:
        _take_steps(here, state, timeout)
    except KeyboardInterrupt:
        say("\nthe move is not complete; run the same command again to continue it")
        raise
    say(f"broker {here.node_id} works at its new place, with all its replicas in sync")


def _take_steps(here: _Here, state: "DiskState", timeout: float) -> None:
    from appliance.kafka.broker_moving import BrokerMoving
    from appliance.kafka.disk_replacement import DiskReplacement

    with step_progress() as progress:
        if here.is_blank(state):
            replacement = DiskReplacement(here.node_id, progress.begin, progress.wait)
            if with_cluster(None, timeout, replacement.proceed) is not None:
                _move_broker(here, progress, is_empty=True)
                replacement.has_started = True
                with_cluster(None, timeout, replacement.proceed)
            return
        if here.place.must_move or not state.is_in_service:
            _move_broker(here, progress)
        moving = BrokerMoving(here.node_id, here.place.address, progress.begin, progress.wait)
        with_cluster(None, timeout, moving.proceed)


def _move_broker(here: _Here, progress: "StepProgress", *, is_empty: bool = False) -> None:
    """Stop the broker, move its folder, and start it at its new place."""
    from appliance.cli.broker_addition import START_TIMEOUT_S, wait_healthy
    from appliance.cli.mill_commands import refuse_what_cannot_run, start_part
    from appliance.kafka.membership_steps import MoveFolder, StartMoved, StopBroker

    home, place = context.home(), here.place
    if place.has_new_ports:
        refuse_what_cannot_run(here.mill, here.loaded, context.mill_as_it_runs())
    if place.must_move and place.runs:
        progress.begin(StopBroker(here.node_id))
        with waiting(f"stopping {here.part}"):
            try:
                lifecycle.stop_part(home, here.part, START_TIMEOUT_S)
            except lifecycle.StillStopping as error:
                raise CommandError(
                    f"{error}; run the same command again to continue", Exit.TIMEOUT
                ) from error
    if place.folder is not None and here.begun is not None:
        progress.begin(MoveFolder(here.node_id, *place.folder))
        here.begun.carry_out(is_empty=is_empty)
    progress.begin(StartMoved(here.node_id, place.address, is_empty=is_empty))
    if not place.has_new_ports:
        start_part(here.part, START_TIMEOUT_S)
        return
    answer = control.ask(home.socket, {"command": "apply", "sha256": here.mill.sha256})
    if not answer["ok"]:
        raise CommandError(f"{here.part} is stopped, and not started: {answer['error']}")
    wait_healthy(here.node_id)

"""The commands there are, and where each is found when it is asked for.

A command loads what it needs and nothing of the others: help and completion load nothing at all.
Lines of help stand here for that reason; a test holds them against the commands' own.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from appliance.cli.elsewhere import refuse_elsewhere
from appliance.cli.help_lines import write_commands


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, or a group of them, by module and name."""

    module: str
    attribute: str
    help: str
    is_hidden: bool = False

    def load(self) -> Any:
        """The function or group itself."""
        return getattr(import_module(f"appliance.cli.{self.module}"), self.attribute)


COMMANDS: dict[str, Entry] = {
    "up": Entry(
        "mill_commands",
        "up",
        "Start the mill and wait until it is healthy; of one that runs, start what does not run.",
    ),
    "down": Entry(
        "mill_commands", "down", "Stop the mill cleanly: nothing lost, nothing left running."
    ),
    "restart": Entry(
        "mill_commands",
        "restart",
        "Stop and start the mill with the configuration as it is now, or one part as it was.",
    ),
    "start": Entry(
        "mill_commands",
        "start",
        "Start one part of a running mill that was stopped, or has given up.",
    ),
    "stop": Entry(
        "mill_commands",
        "stop",
        "Stop one part of a running mill; it stays stopped until `start`, `restart` or `up`.",
    ),
    "status": Entry(
        "status_command",
        "status",
        "How every part is; exit code 3 when the mill is not wholly healthy.",
    ),
    "logs": Entry("log_command", "logs", "The parts' logs, oldest first."),
    "doctor": Entry(
        "doctor",
        "doctor",
        "Look at this machine and this mill; findings with remedies; exit code 3 on a failure.",
    ),
    "demo": Entry(
        "demo_command",
        "demo",
        "Write a minute of made-up web traffic into watched/access; Ctrl-C ends it cleanly.",
    ),
    "show": Entry(
        "show_command",
        "show",
        "Print a metric's counts: from Redis, or from MySQL when Redis is away.",
    ),
    "detect": Entry(
        "detect_command",
        "detect",
        "Name the format of unknown logs, and propose inputs and metrics for them.",
    ),
    "lag": Entry(
        "lag_command", "lag", "How far every reader lags, from the monitor's latest snapshot."
    ),
    "top": Entry(
        "top_command",
        "top",
        "Parts, what they take and do, and how far readers lag: live on a terminal, `q` ends it.",
    ),
    "alerts": Entry("alerts_command", "app", "What the monitor warns of, and whom it tells."),
    "topic": Entry("topic_commands", "app", "Topics of the cluster."),
    "group": Entry("group_commands", "app", "Groups of readers, and how far they are."),
    "produce": Entry(
        "produce_command",
        "produce",
        "Send lines as records; ends when each is stored, and with code 1 if any is not.",
    ),
    "consume": Entry(
        "consume_command",
        "consume",
        "Print the records of topics; without -g it leaves no group behind.",
    ),
    "dump-log": Entry(
        "dump_command",
        "dump_log",
        "Check log files and what lies beside them; exit code 3 when anything is damaged.",
    ),
    "broker": Entry("broker_commands", "app", "Brokers of the cluster."),
    "config": Entry(
        "config_commands", "app", "The configuration file, and the cluster's settings."
    ),
    "collector": Entry("collector_commands", "app", "The collector and its files."),
    "stream": Entry("stream_commands", "app", "The stream and its metrics."),
    "backup": Entry(
        "backup_command",
        "backup",
        "Copy the whole mill, of one moment, while it runs or when it is stopped.",
    ),
    "restore": Entry(
        "backup_command",
        "restore",
        "Make a data folder of a backup, where there is none; nothing is ever overwritten.",
    ),
    "run": Entry(
        "part_commands",
        "run",
        "Become one part's process. The supervisor and every container start parts this way.",
    ),
    "install-service": Entry(
        "service_command",
        "install_service",
        "A systemd unit that starts this mill with the machine; shown, and written with --write.",
    ),
    "init": Entry(
        "part_commands",
        "init",
        "Make ids and secrets that are missing; changes nothing that exists.",
    ),
    "completion": Entry(
        "completion_command", "completion", "Print what lets a shell complete these commands."
    ),
    "version": Entry("version_command", "version", "The mill's version."),
    "supervise": Entry("part_commands", "supervise", "", is_hidden=True),
    "wish": Entry("part_commands", "wish", "", is_hidden=True),
}


class Tree(TyperGroup):
    """The group of all commands; each is made when its name is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, hidden ones too."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, loaded; None for an unknown one."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _made(cmd_name, entry)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As always, but that every name counts for the question what was meant."""
        if args and args[0] not in COMMANDS:
            for name, entry in COMMANDS.items():
                if not entry.is_hidden:
                    self.commands.setdefault(name, _placeholder(name, entry))
        if args:
            refuse_elsewhere(args)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names for a shell, out of the table: no command is loaded for it."""
        for name, entry in COMMANDS.items():
            self.commands[name] = _placeholder(name, entry)
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of `--help`, out of the table above."""
        rows = [(name, entry.help) for name, entry in COMMANDS.items() if not entry.is_hidden]
        write_commands(formatter, rows)


def _placeholder(name: str, entry: Entry) -> Any:
    """Something with a name and a line of help, for what asks for no more."""
    command = typer.main.get_command(_app_of(lambda: None, name))
    command.help, command.hidden = entry.help, entry.is_hidden
    return command


def _made(name: str, entry: Entry) -> Any:
    found = entry.load()
    app = found if isinstance(found, typer.Typer) else _app_of(found, name)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _app_of(callback: Any, name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name)(callback)
    return app

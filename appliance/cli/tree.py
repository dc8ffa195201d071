"""The table of all commands, and the module from which each is loaded.

Each command loads only what it needs. Help and completion load no command. So the first lines of
help texts are repeated here, and a test compares them with the commands' own texts.
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
class CommandEntry:
    """A command, or a group of them, by module and name."""

    module: str
    attribute: str
    help: str
    is_hidden: bool = False

    def load(self) -> Any:
        """Load the function or group itself."""
        return getattr(import_module(f"appliance.cli.{self.module}"), self.attribute)


COMMANDS: dict[str, CommandEntry] = {
    "up": CommandEntry(
        "mill_commands",
        "up",
        "Start the mill and wait until it is healthy; if it runs, start the parts that do not.",
    ),
    "down": CommandEntry(
        "mill_commands", "down", "Stop the mill cleanly: nothing lost, nothing left running."
    ),
    "restart": CommandEntry(
        "mill_commands",
        "restart",
        "Stop and start the mill with the configuration as it is now, or one part as it was.",
    ),
    "start": CommandEntry(
        "mill_commands",
        "start",
        "Start one part of a running mill that was stopped, or has given up.",
    ),
    "stop": CommandEntry(
        "mill_commands",
        "stop",
        "Stop one part of a running mill; it stays stopped until `start`, `restart` or `up`.",
    ),
    "status": CommandEntry(
        "status_command",
        "status",
        "Show the state of every part; exit code 3 when the mill is not wholly healthy.",
    ),
    "logs": CommandEntry("log_command", "logs", "Show the parts' logs, oldest lines first."),
    "doctor": CommandEntry(
        "doctor",
        "doctor",
        "Check this machine and this mill, with remedies; exit code 3 on a failure.",
    ),
    "demo": CommandEntry(
        "demo_command",
        "demo",
        "Write a minute of made-up web traffic into watched/access; Ctrl-C ends it cleanly.",
    ),
    "show": CommandEntry(
        "show_command",
        "show",
        "Print a metric's counts: from Redis, or from MySQL when Redis does not answer.",
    ),
    "detect": CommandEntry(
        "detect_command",
        "detect",
        "Name the format of unknown logs, and propose inputs and metrics for them.",
    ),
    "lag": CommandEntry(
        "lag_command", "lag", "Show how far every reader lags, from the monitor's latest snapshot."
    ),
    "top": CommandEntry(
        "top_command",
        "top",
        "Parts, their resources and rates, and lag of readers: live on a terminal, `q` ends it.",
    ),
    "alerts": CommandEntry(
        "alerts_command", "app", "Open alerts, and where the monitor sends them."
    ),
    "topic": CommandEntry("topic_commands", "app", "Topics of the cluster."),
    "group": CommandEntry("group_commands", "app", "Groups of readers and their offsets."),
    "produce": CommandEntry(
        "produce_command",
        "produce",
        "Send lines as records; ends when all are stored, with code 1 if some are not.",
    ),
    "consume": CommandEntry(
        "consume_command",
        "consume",
        "Print the records of topics; without -g no group is created.",
    ),
    "dump-log": CommandEntry(
        "dump_command",
        "dump_log",
        "Check log files and their index files; exit code 3 when anything is damaged.",
    ),
    "cluster": CommandEntry("cluster_commands", "app", "The cluster as a whole."),
    "broker": CommandEntry("broker_commands", "app", "Brokers of the cluster."),
    "reassign": CommandEntry("reassign_commands", "app", "Move replicas between brokers."),
    "elect-leader": CommandEntry(
        "elect_command",
        "elect_leader",
        "Elect preferred leaders, or any live replica where none is in sync.",
    ),
    "config": CommandEntry(
        "config_commands", "app", "The configuration file, and the cluster's settings."
    ),
    "cert": CommandEntry(
        "cert_commands", "app", "The mill's own CA, and the certificates of its parts."
    ),
    "user": CommandEntry(
        "user_commands",
        "app",
        "Users that log in to the brokers, and people who log in to the page.",
    ),
    "token": CommandEntry(
        "token_commands", "app", "Tokens with which scripts read the page and its API."
    ),
    "acl": CommandEntry("acl_commands", "app", "What users may do."),
    "enrol": CommandEntry("enrol_commands", "app", "Let other hosts in."),
    "join": CommandEntry(
        "join_command",
        "join",
        "Make this host a collector or a broker of a mill; the same command continues.",
    ),
    "quota": CommandEntry("quota_commands", "app", "How much clients may send, read and ask."),
    "collector": CommandEntry("collector_commands", "app", "The collector and its files."),
    "stream": CommandEntry("stream_commands", "app", "The stream and its metrics."),
    "backup": CommandEntry(
        "backup_command",
        "backup",
        "Copy the whole mill at one moment, while it runs or when it is stopped.",
    ),
    "restore": CommandEntry(
        "backup_command",
        "restore",
        "Make a data folder from a backup, where there is none; it never overwrites anything.",
    ),
    "upgrade": CommandEntry(
        "upgrade_command",
        "app",
        "Restart the parts one after the other, so that they run the installed version.",
    ),
    "run": CommandEntry(
        "part_commands",
        "run",
        "Become one part's process. The supervisor and every container start parts this way.",
    ),
    "install-service": CommandEntry(
        "service_command",
        "install_service",
        "Show the systemd unit of this mill; with --write, write it.",
    ),
    "init": CommandEntry(
        "part_commands",
        "init",
        "Create ids and secrets that are missing; change nothing that exists.",
    ),
    "completion": CommandEntry(
        "completion_command",
        "completion",
        "Print a script that completes these commands in a shell.",
    ),
    "version": CommandEntry("version_command", "version", "The mill's version."),
    "supervise": CommandEntry("part_commands", "supervise", "", is_hidden=True),
    "wish": CommandEntry("part_commands", "wish", "", is_hidden=True),
}


class Tree(TyperGroup):
    """The group of all commands; a command is loaded when its name is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return every name, hidden ones too."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the command of this name; None for an unknown one."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _made(cmd_name, entry)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As in typer, except that a suggestion for a mistyped name considers every name."""
        if args and args[0] not in COMMANDS:
            for name, entry in COMMANDS.items():
                if not entry.is_hidden:
                    self.commands.setdefault(name, _placeholder(name, entry))
        if args:
            refuse_elsewhere(args)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names for a shell from the table, without loading a command."""
        for name, entry in COMMANDS.items():
            self.commands[name] = _placeholder(name, entry)
        return super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of `--help` from the table above."""
        rows = [(name, entry.help) for name, entry in COMMANDS.items() if not entry.is_hidden]
        write_commands(formatter, rows)


def _placeholder(name: str, entry: CommandEntry) -> Any:
    """Return an object that has only a name and a line of help, for callers that need no more."""
    command = typer.main.get_command(_app_of(lambda: None, name))
    command.help, command.hidden = entry.help, entry.is_hidden
    return command


def _made(name: str, entry: CommandEntry) -> Any:
    found = entry.load()
    app = found if isinstance(found, typer.Typer) else _app_of(found, name)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _app_of(callback: Any, name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(name)(callback)
    return app

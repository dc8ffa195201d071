"""The systemd unit that keeps a mill running.

This module is pure: it gets facts and returns text. docs/decisions/0081 explains each line.
"""

from dataclasses import dataclass
from pathlib import Path

from protocol.status import EXIT_FENCED

MARK = (
    "# Written by `millrace install-service`; written anew by it, so changes belong in a drop-in."
)
"""The first line of a unit that this command has written and so may overwrite.

Units on disks have this text, so it must not change.
"""

START_S = 900
"""The time-out of a start in seconds. After a power cut a broker reads whole segments before Spark
starts."""

STOP_S = 300
STOP_MARGIN_S = 30

NEVER_AGAIN = (2, 3)
"""The exit codes after which another start would fail too: a fault in the file, or an unmet
condition."""


class PathNotFit(ValueError):
    """The error for a path that a unit file cannot contain."""


@dataclass(frozen=True, slots=True)
class Service:
    """A mill as a systemd service.

    `user` None means the account for which the service manager runs.
    """

    folder: Path
    command: Path
    config_file: Path
    user: str | None
    is_system: bool
    only_collects: bool = False
    """True for a host whose only part is a collector, which runs without a supervisor."""


def unit_text(service: Service) -> str:
    """Return the unit's text. Raises PathNotFit."""
    home = plain(service.folder)
    what = "sent" if service.only_collects else "counted"
    lines = [
        MARK,
        "[Unit]",
        f"Description=Millrace, log files {what} ({home})",
        "After=local-fs.target network.target",
        f"RequiresMountsFor={quoted(service.folder)}",
        "",
        "[Service]",
        f"Type={'exec' if service.only_collects else 'notify'}",
        *([f"User={service.user}"] if service.user is not None else []),
        f"WorkingDirectory={home}",
        f"Environment={quoted_pair('MILLRACE_HOME', service.folder)}",
        f"Environment={quoted_pair('MILLRACE_CONFIG', service.config_file)}",
        *(_collects(service) if service.only_collects else _counts(service)),
        "LimitNOFILE=65536",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if service.is_system else 'default'}.target",
        "",
    ]
    return "\n".join(lines)


def _counts(service: Service) -> list[str]:
    """Return the lines that run a whole mill."""
    return [
        f"ExecStart={quoted(service.command)} up --foreground --timeout {START_S}",
        f"TimeoutStartSec={START_S + STOP_MARGIN_S}",
        "# SIGTERM goes to the command alone, which stops the parts in their order.",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S + STOP_MARGIN_S}",
        "Restart=on-failure",
        "RestartSec=5",
        f"RestartPreventExitStatus={' '.join(map(str, NEVER_AGAIN))}",
        "# A part that the kernel ends for its memory is started again by the supervisor.",
        "OOMPolicy=continue",
        "# The parts' lines lie in data/logs; the journal has what the command says.",
        "StandardOutput=null",
        "StandardError=journal",
    ]


def _collects(service: Service) -> list[str]:
    """Return the lines that run a collector alone."""
    return [
        f"ExecStart={quoted(service.command)} collector run",
        "Restart=on-failure",
        "RestartSec=5",
        "# After these codes another start would fail too: a fault in the file, an unmet",
        "# condition, or another collector that has the same name.",
        f"RestartPreventExitStatus={' '.join(map(str, (*NEVER_AGAIN, EXIT_FENCED)))}",
        "StandardOutput=journal",
        "StandardError=journal",
    ]


def unit_folder(*, is_system: bool, config_home: Path) -> Path:
    """Return the folder for units that administrators write: of the machine, or of one account."""
    return Path("/etc/systemd/system") if is_system else config_home / "systemd" / "user"


def next_steps(unit: str, *, is_system: bool, user: str) -> list[str]:
    """Return the commands for the user to run next."""
    control = "systemctl" if is_system else "systemctl --user"
    steps = [f"{control} daemon-reload", f"{control} enable --now {unit}"]
    if not is_system:
        # Without lingering, the account's services end when it logs out.
        steps.append(f"loginctl enable-linger {user}")
    return steps


def is_ours(text: str) -> bool:
    """Return whether this command wrote the unit file, so that the command can overwrite the
    file.
    """
    return text.startswith(MARK)


def plain(path: Path) -> str:
    """Return a path for a setting whose value extends to the end of the line. Raises PathNotFit."""
    text = str(path)
    if any(not character.isprintable() or character in '"\\' for character in text):
        raise PathNotFit(
            f"found {text!r}, expected a path without quotes, backslashes and controls"
        )
    return text.replace("%", "%%")


def quoted(path: Path) -> str:
    """Return a path in quotes, so that blanks in it do not end the word. Raises PathNotFit."""
    return f'"{plain(path)}"'


def quoted_pair(name: str, path: Path) -> str:
    """Return a variable and its value as one word. Raises PathNotFit."""
    return f'"{name}={plain(path)}"'

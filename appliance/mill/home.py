"""The places of one mill: code, configuration, watched files, data.

Names only; nothing is created or read here. Usually the code and the mill are in the same folder.
Tests and containers give the mill a folder of its own with MILLRACE_HOME.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]

EDITED_VARIABLE = "MILLRACE_EDITED_CONFIG"
"""Tells a supervisor which file its started configuration is a copy of."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one mill."""

    folder: Path
    config_file: Path
    code: Path = CODE
    edited: Path | None = None

    @property
    def edited_config(self) -> Path:
        """The file that people edit; `config_file` can be the copy that a mill was started with."""
        return self.edited or self.config_file

    @property
    def data(self) -> Path:
        """The folder with all data of the mill. If you remove it, the mill starts empty."""
        return self.folder / "data"

    @property
    def logs(self) -> Path:
        """One log file per part."""
        return self.data / "logs"

    @property
    def secrets(self) -> Path:
        """Ids and passwords, a folder per part."""
        return self.data / "secrets"

    @property
    def run(self) -> Path:
        """Records of running processes, and the configuration they were started with."""
        return self.data / "run"

    @property
    def started_config(self) -> Path:
        """The configuration that the mill was started with."""
        return self.run / "millrace.yaml"

    @property
    def config_before(self) -> Path:
        """The configuration before a saved file removed metrics."""
        return self.run / "millrace.before.yaml"

    @property
    def socket(self) -> Path:
        """The supervisor's socket for commands."""
        return self.data / "supervisor.sock"

    @property
    def pid_file(self) -> Path:
        """The record of the supervisor's process."""
        return self.data / "supervisor.pid"

    @property
    def lock_file(self) -> Path:
        """The supervisor locks this file as long as it lives."""
        return self.data / "supervisor.lock"

    @property
    def jars(self) -> Path:
        """Spark's Kafka connector, fetched by set-up.

        The folder is beside the code in a clone and in an image. If the code was installed as a
        package, it is in the mill's own folder.
        """
        beside = self.code / ".cache" / "jars"
        return beside if beside.exists() else self.folder / ".cache" / "jars"

    def part_data(self, part: str) -> Path:
        """A part's own data folder."""
        return self.data / part

    def part_secrets(self, part: str) -> Path:
        """A part's own secrets."""
        return self.secrets / part

    def part_log(self, part: str) -> Path:
        """A part's log file."""
        return self.logs / f"{part}.log"

    def part_record(self, part: str) -> Path:
        """The record of a part's process."""
        return self.run / f"{part}.json"


def find_home(environ: Mapping[str, str] | None = None, config: Path | None = None) -> Home:
    """Return the mill that the environment names, or the one this code is in."""
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("MILLRACE_HOME") or CODE).absolute()
    named = config or environ.get("MILLRACE_CONFIG")
    config_file = Path(named).absolute() if named else folder / "configs" / "millrace.yaml"
    edited = environ.get(EDITED_VARIABLE)
    return Home(folder, config_file, edited=Path(edited) if edited else None)

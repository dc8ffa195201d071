"""Where everything of one mill lies: code, configuration, watched files, data.

Names only; nothing is made or read here. The code's folder and the mill's folder are the same in
everyday use; tests and containers give the mill a folder of its own by MILLRACE_HOME.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]

EDITED_VARIABLE = "MILLRACE_EDITED_CONFIG"
"""Tells a supervisor which file the configuration it is started with was copied from."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one mill."""

    folder: Path
    config_file: Path
    code: Path = CODE
    edited: Path | None = None

    @property
    def edited_config(self) -> Path:
        """The file that people edit, where `config_file` is the copy a mill was started with."""
        return self.edited or self.config_file

    @property
    def data(self) -> Path:
        """Everything the mill keeps; removing it starts afresh."""
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
        """Which processes run, and the configuration they were started with."""
        return self.data / "run"

    @property
    def started_config(self) -> Path:
        """The configuration as it was when the mill was started."""
        return self.run / "millrace.yaml"

    @property
    def config_before(self) -> Path:
        """The configuration as it was before a saved file took metrics away."""
        return self.run / "millrace.before.yaml"

    @property
    def socket(self) -> Path:
        """Where the supervisor takes commands."""
        return self.data / "supervisor.sock"

    @property
    def pid_file(self) -> Path:
        """Which process is the supervisor."""
        return self.data / "supervisor.pid"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.data / "supervisor.lock"

    @property
    def jars(self) -> Path:
        """Spark's Kafka connector, fetched by set-up.

        It lies beside the code in a clone and in an image, in the mill's own folder where the code
        was installed as a package.
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
        """Which process a part is."""
        return self.run / f"{part}.json"


def find_home(environ: Mapping[str, str] | None = None, config: Path | None = None) -> Home:
    """The mill meant by the environment, or the one this code lies in."""
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("MILLRACE_HOME") or CODE).absolute()
    named = config or environ.get("MILLRACE_CONFIG")
    config_file = Path(named).absolute() if named else folder / "configs" / "millrace.yaml"
    edited = environ.get(EDITED_VARIABLE)
    return Home(folder, config_file, edited=Path(edited) if edited else None)

"""The paths of one mill: code, configuration, watched files, data.

The module only computes paths. It creates and reads nothing. Usually the code and the mill are in
the same folder. Tests and containers give the mill a separate folder with MILLRACE_HOME.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.config.containers import host_broker, is_container

CODE = Path(__file__).resolve().parents[2]

EDITED_VARIABLE = "MILLRACE_EDITED_CONFIG"
"""The variable that names, for a supervisor, the file that people edit. The supervisor's own
configuration file is a copy of it."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folders and files of one mill."""

    folder: Path
    config_file: Path
    code: Path = CODE
    edited: Path | None = None
    in_containers: bool = False
    host_broker: int | None = None
    """In containers, the broker of this host by the profile of compose; None if all brokers are on
    this machine."""

    @property
    def edited_config(self) -> Path:
        """The configuration file that people edit. `config_file` can be a copy of it."""
        return self.edited or self.config_file

    @property
    def data(self) -> Path:
        """The folder with all data of the mill. If you remove it, the mill starts empty."""
        return self.folder / "data"

    @property
    def logs(self) -> Path:
        """The folder with one log file per part."""
        return self.data / "logs"

    @property
    def secrets(self) -> Path:
        """The folder with ids and passwords, which has a subfolder per part."""
        return self.data / "secrets"

    @property
    def authority_key(self) -> Path:
        """The key of the mill's CA. If the brokers are on several hosts, only one host has it."""
        return self.secrets / "ca" / "ca.key"

    @property
    def host_record(self) -> Path:
        """The record of the broker as which this host has joined a mill on several hosts. In
        containers only `init` reads it."""
        return self.secrets / "host.json"

    @property
    def run(self) -> Path:
        """The folder with records of running processes, and their configuration."""
        return self.data / "run"

    @property
    def started_config(self) -> Path:
        """The configuration that the mill was started with."""
        return self.run / "millrace.yaml"

    @property
    def config_before(self) -> Path:
        """The configuration from before a saved file removed metrics."""
        return self.run / "millrace.before.yaml"

    @property
    def socket(self) -> Path:
        """The supervisor's socket for commands."""
        return self.data / "supervisor.sock"

    @property
    def monitor_socket(self) -> Path:
        """The monitor's socket for the mill's own commands, if the page needs a login.

        In containers it is in the monitor's volume, which the container of the commands sees.
        """
        folder = self.part_data("monitor") if self.in_containers else self.data
        return folder / "monitor.sock"

    @property
    def pid_file(self) -> Path:
        """The record of the supervisor's process."""
        return self.data / "supervisor.pid"

    @property
    def lock_file(self) -> Path:
        """The file that the supervisor locks as long as it runs."""
        return self.data / "supervisor.lock"

    @property
    def jars(self) -> Path:
        """The folder with Spark's Kafka connector, which the set-up fetches.

        The folder is beside the code in a clone and in an image. If the code was installed as a
        package, it is in the mill's own folder.
        """
        beside = self.code / ".cache" / "jars"
        return beside if beside.exists() else self.folder / ".cache" / "jars"

    @property
    def up(self) -> str:
        """The command line that starts the mill."""
        return "docker compose up -d" if self.in_containers else "./millrace up"

    @property
    def down(self) -> str:
        """The command line that stops the mill."""
        return "docker compose down" if self.in_containers else "./millrace down"

    def writes(self, words: str, file: str, service: str = "init") -> str:
        """Return the command line for a command that writes a secret file for another host. In
        containers a service prints the file. Only `init` has the secrets of all parts."""
        if self.in_containers:
            return f"(umask 077; docker compose run --rm -T {service} {words} --out - >{file})"
        return f"./millrace {words}"

    def reads(self, words: str, file: str = "FILE") -> str:
        """Return the command line for a command that reads such a file."""
        if self.in_containers:
            return f"docker compose run --rm -T init {words} - <{file}"
        return f"./millrace {words} {file}"

    def part_data(self, part: str) -> Path:
        """Return the data folder of a part."""
        return self.data / part

    def part_secrets(self, part: str) -> Path:
        """Return the folder with the secrets of a part."""
        return self.secrets / part

    def part_log(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{part}.log"

    def part_record(self, part: str) -> Path:
        """Return the file with the record of a part's process."""
        return self.run / f"{part}.json"


def find_home(environ: Mapping[str, str] | None = None, config: Path | None = None) -> Home:
    """Return the mill that the environment or `--config` names, else the mill in the folder of this
    code."""
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("MILLRACE_HOME") or CODE).absolute()
    named = config or environ.get("MILLRACE_CONFIG")
    config_file = Path(named).absolute() if named else folder / "configs" / "millrace.yaml"
    edited = environ.get(EDITED_VARIABLE)
    return Home(
        folder,
        config_file,
        edited=Path(edited) if edited else None,
        in_containers=is_container(environ),
        host_broker=host_broker(environ),
    )

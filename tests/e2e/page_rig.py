"""A mill in which the commands of a page are typed as they are, and its YAML is pasted.

Ports and absolute paths of the page become those of the mill. Each command's output is compared
with the page. A command that only reads is repeated until its output matches, as a reader would do.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from appliance.config.document import read_document
from appliance.mill.home import CODE
from tests.e2e.mill import PORT_NAMES, SHIPPED, TempMill, temp_mill
from tests.harness.fragments import (
    is_format,
    merged,
    placed,
    read_piece,
    with_writers,
    write_format,
)
from tests.harness.pages import Command, blocks_of, commands_of, is_as_shown
from tests.harness.pages_not_run import NOT_PASTED, reason_not_run
from tests.harness.wait import wait_until

SHOWN_S = 120.0
COMMAND_S = 300.0
FOLDERS = ("/var/tmp/", "/var/log/", "/backups/")
"""Absolute paths in pages. Each becomes a folder of the rig."""
REPORTS = r"\./millrace (doctor|status|alerts list|collector check|cert show|broker list)\b"
"""Commands that end with 3 when they found something to report, such as open alerts."""
CONDITION = 3
END_AT_A_FAILURE = (
    f"reports='^{REPORTS}'; "
    f"trap 'code=$?; [[ $code -eq {CONDITION} && $BASH_COMMAND =~ $reports ]] || exit $code' ERR"
).replace(r"\b", "( |$)")
READING = re.compile(
    r"(\./millrace (show|status|lag|top|alerts list|group|collector (status|check)|stream status)"
    r"|redis-cli|mysql|curl)\b"
)
KAFKA = "kafka-1:9092"
"""The address of the reader's existing Kafka in the pages. The mill's broker takes its place."""
LISTENS = {"host": 9092, "redis": 6380, "mysql": 3307, "monitor": 8090}


@dataclass(frozen=True)
class Rig:
    """One mill, and a folder that stands for the root folder of the reader's machine."""

    mill: TempMill
    root: Path

    @property
    def home(self) -> Path:
        return self.mill.home.folder

    def local(self, text: str) -> str:
        """Return the text with the paths and ports of the test in place of the page's."""
        for folder in FOLDERS:
            text = re.sub(rf"(?<![\w/.]){folder}", f"{self.root}{folder}", text)
        text = text.replace(KAFKA, "127.0.0.1:9092")
        for name, port in LISTENS.items():
            text = re.sub(rf"\b{port}\b", str(self.mill.ports[name]), text)
        return text

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")}
        path = f"{self.root / 'bin'}:{environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", f"{END_AT_A_FAILURE}\n{self.local(text)}"],
            cwd=self.home,
            env={**environ, **self.mill.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def type_page(self, page: str) -> int:
        """Type all commands and paste all YAML of a page, in order. Return the number of
        commands."""
        typed = 0
        for block in blocks_of(page):
            if block.language == "yaml" and page not in NOT_PASTED:
                self._paste(block.page, block.text, block.place)
            commands = [one for one in commands_of(block) if reason_not_run(one) is None]
            typed += len(commands)
            if block.language == "sh" and commands:
                self._run_all(commands)
            for command in commands if block.language != "sh" else ():
                self._compare(command)
        return typed

    def _run_all(self, commands: list[Command]) -> None:
        """Type a `sh` block, for which the page shows no output. One shell runs all its lines, so
        later lines can use variables of earlier ones."""
        done = self.run("\n".join(one.text for one in commands))
        last = commands[-1].text
        assert is_success(last, done), f"{commands[0].block.place}: {done.stdout}{done.stderr}"

    def _compare(self, command: Command) -> None:
        text = self._query(command.text) if command.block.language == "sql" else command.text
        shown = tuple(self.local(line) for line in command.output)
        said = ""

        def is_shown() -> bool:
            nonlocal said
            done = self.run(text)
            said = done.stdout + done.stderr
            assert is_success(text, done) or READING.match(text), f"{place}: {said}"
            if command.block.language == "sql":
                return done.returncode == 0 and bool(done.stdout.strip())
            return is_success(text, done) and is_as_shown(said, shown)

        place = f"{command.block.place}: {command.text}"
        if not READING.match(text):
            assert is_shown(), f"{place}\nprints\n{said}"
            return
        try:
            wait_until(is_shown, SHOWN_S, place)
        except AssertionError as error:
            raise AssertionError(f"{place}\nprints\n{said}") from error

    def _query(self, sql: str) -> str:
        """Return a command that runs a query of Grafana in the mysql client, without a time
        limit."""
        query = re.sub(r"\$__timeFilter\(\w+\)", "TRUE", sql).replace("'", "'\\''")
        password = '"$(cat data/secrets/mysql/reader)"'
        return f"mysql -h 127.0.0.1 -P 3307 -u reader -p{password} millrace -e '{query}'"

    def _paste(self, page: str, text: str, place: str) -> None:
        """Merge a part into the configuration file, as a reader does in an editor."""
        piece = read_piece(self.local(text), place)
        if is_format(piece):
            write_format(text, place, self.home)
            return
        file = self.mill.home.config_file
        values = read_document(file.read_text(), str(file)).root
        values = with_writers(merged(values, placed(piece, page)))
        written = file.with_suffix(".new")
        written.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
        written.replace(file)


def is_success(command: str, done: subprocess.CompletedProcess[str]) -> bool:
    """Return True if a command succeeded. A command of `REPORTS` also succeeds with exit code 3."""
    return done.returncode == 0 or (
        done.returncode == CONDITION and re.match(REPORTS, command) is not None
    )


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """Yield a running mill of the shipped configuration with one broker."""
    with temp_mill(folder / "mill") as mill:
        ports = {f"MILLRACE_PORTS__{name.upper()}": str(mill.ports[name]) for name in PORT_NAMES}
        mill.environ = {
            **ports,
            "MILLRACE_MONITOR__LISTEN": f"127.0.0.1:{mill.ports['monitor']}",
            "MILLRACE_CLUSTER__BROKERS": "1",
            "MILLRACE_HOME": str(mill.home.folder),
        }
        shutil.copyfile(SHIPPED, mill.home.config_file)
        root = folder / "root"
        for name in (*FOLDERS, "/bin"):
            (root / name.strip("/")).mkdir(parents=True)
        _script(mill.home.folder / "millrace", f"cd {CODE}", f"exec {sys.executable} -m appliance")
        (root / "bin" / "millrace").symlink_to(mill.home.folder / "millrace")
        client = shutil.which("redis-cli")
        if client is not None:
            # On a terminal redis-cli prints quotes and numbers, which the pages show.
            _script(root / "bin" / "redis-cli", f"exec {client} --no-raw")
        mill.up()
        yield Rig(mill, root)


def _script(path: Path, *lines: str) -> None:
    *before, last = lines
    path.write_text("\n".join(["#!/bin/sh", *before, f'{last} "$@"']) + "\n")
    path.chmod(0o755)

"""Writes a proposal into the configuration file, and removes it again.

The inserted lines are stored in `data/detect/NAME.json`, so that exactly these lines can be
removed. Nothing is written unless the new file passes the checks of `config check`.
"""

import difflib
import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.config.load import LoadedConfig, load_bytes
from appliance.detect.detection import Proposal
from appliance.detect.edit import EditRefused, with_proposal, without
from appliance.detect.proposing import NAME, NAME_EXPECTED, renamed
from appliance.errors import Failure
from appliance.machine.files import write_atomically
from appliance.mill.home import Home
from collector.config.input_section import InputSection
from collector.config.settings import CollectorSection
from collector.identity.discovery import plan


class NotApplied(Failure):
    """Raised when nothing was written. The text says why."""


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """A change of the configuration file that has not been written yet.

    `loaded` is the new file, checked without Spark and databases.
    """

    home: Home
    name: str
    before: bytes
    after: bytes
    loaded: LoadedConfig
    inserted: tuple[str, ...]
    metrics: tuple[str, ...]

    def difference(self) -> list[str]:
        """Return the changed lines, as `diff -u` shows them."""
        file = str(self.home.config_file)
        before, after = self.before.decode().splitlines(), self.after.decode().splitlines()
        return list(difflib.unified_diff(before, after, file, file, lineterm=""))


def planned(home: Home, proposal: Proposal, name: str, file: Path) -> ConfigEdit:
    """Return the change that adds a proposal to the configuration under a name. Raises NotApplied
    and ConfigFaults."""
    if not NAME.match(name):
        raise NotApplied(f"found the name {name!r}, expected {NAME_EXPECTED}")
    before = home.config_file.read_bytes()
    loaded = load_bytes(before, home.config_file, home.folder)
    proposal = renamed(proposal, name, _paths_of(home, loaded, name, file))
    _refuse_known(loaded, proposal)
    defaults = [_plain(one) for one in CollectorSection().inputs]
    try:
        edited = with_proposal(before.decode(), proposal, defaults)
    except EditRefused as error:
        raise NotApplied(
            f"{home.config_file} was not changed: {error}; run `detect` without --apply, and "
            "paste the lines that it prints"
        ) from error
    after = edited.text.encode()
    return ConfigEdit(
        home,
        name,
        before,
        after,
        load_bytes(after, home.config_file, home.folder),
        edited.inserted,
        tuple(str(metric["name"]) for metric in proposal.metrics),
    )


def _plain(section: InputSection) -> dict[str, object]:
    return {"paths": list(section.paths), "topic": section.topic}


def _paths_of(home: Home, loaded: LoadedConfig, name: str, file: Path) -> list[str]:
    """Return a glob for the file's folder if the file is in `watched/` and no input matches it.

    Otherwise return an empty list.
    """
    folder = home.folder.resolve()
    path = file.resolve()
    watched = folder / "watched"
    if not path.is_relative_to(watched):
        return []
    inputs = loaded.config.collector.inputs
    if any(pattern.wildcards(str(path)) is not None for pattern in plan(inputs, str(folder))):
        return []
    steps = path.relative_to(watched).parts
    if len(steps) == 1:
        return [f"watched/{steps[0]}"]
    return [] if steps[0] == name else [f"watched/{steps[0]}/**"]


def _refuse_known(loaded: LoadedConfig, proposal: Proposal) -> None:
    config, name = loaded.config, proposal.name
    topic = str(proposal.stream["topic"])
    if name in config.stream.from_:
        raise NotApplied(f"stream.from already has an input {name!r}: choose another name")
    if any(one.topic == topic for one in config.stream.from_.values()):
        raise NotApplied(f"an input of stream.from already reads {topic}: choose another name")
    if any(one.topic == topic for one in config.collector.inputs):
        raise NotApplied(f"an input of the collector already writes {topic}: choose another name")
    known = {metric.name for metric in config.stream.metrics}
    for metric in proposal.metrics:
        if metric["name"] in known:
            raise NotApplied(f"there is already a metric {metric['name']!r}: choose another name")


def write(change: ConfigEdit, check: Callable[[ConfigEdit], None]) -> bool:
    """Check the new file as `config check` does, write it and create the input's folder.

    Return whether the folder was created. Raises NotApplied, and the errors of `check`.
    """
    check(change)
    home = change.home
    _replace(home, change.before, change.after)
    folder = home.folder / "watched" / change.name
    made = not folder.exists()
    record = {
        "name": change.name,
        "inserted": list(change.inserted),
        "metrics": list(change.metrics),
        "folder_made": made,
    }
    path = _record(home, change.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(record, ensure_ascii=False).encode())
    folder.mkdir(parents=True, exist_ok=True)
    return made


def undone(home: Home, name: str) -> ConfigEdit:
    """Return the change that removes the proposal with this name. Raises NotApplied and
    ConfigFaults.
    """
    try:
        record = json.loads(_record(home, name).read_bytes())
    except (OSError, ValueError):
        raise NotApplied(
            f"there is no record that `detect --apply` wrote {name!r}: remove its lines from "
            f"{home.config_file} yourself"
        ) from None
    before = home.config_file.read_bytes()
    inserted, metrics = tuple(record["inserted"]), tuple(record["metrics"])
    try:
        after = without(before.decode(), inserted, name, metrics).encode()
    except EditRefused as error:
        raise NotApplied(
            f"{name} was not removed from {home.config_file}: {error}. Remove it yourself: the "
            f"collector's input of logs.{name}, stream.from.{name}, and the metrics "
            f"{', '.join(metrics)}"
        ) from error
    loaded = load_bytes(after, home.config_file, home.folder)
    return ConfigEdit(home, name, before, after, loaded, inserted, metrics)


def take_back(change: ConfigEdit) -> bool:
    """Write the file without a proposal. Return whether its empty folder was removed too."""
    home = change.home
    _replace(home, change.before, change.after)
    path = _record(home, change.name)
    made = bool(json.loads(path.read_bytes())["folder_made"])
    path.unlink(missing_ok=True)
    folder = home.folder / "watched" / change.name
    if made and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        return True
    return False


def applied_names(home: Home) -> Sequence[str]:
    """Return the names of the proposals that can be removed."""
    return sorted(path.stem for path in _record(home, "x").parent.glob("*.json"))


def _record(home: Home, name: str) -> Path:
    return home.data / "detect" / f"{name}.json"


def _replace(home: Home, before: bytes, after: bytes) -> None:
    """Replace the configuration file. Raises NotApplied if it has changed since `before` was
    read.
    """
    path = home.config_file.resolve()
    if path.read_bytes() != before:
        raise NotApplied(f"{path} was saved in the meantime: run the command again")
    known = path.stat()
    write_atomically(path, after, mode=stat.S_IMODE(known.st_mode))
    with suppress(OSError):
        os.chown(path, known.st_uid, known.st_gid)

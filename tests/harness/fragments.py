"""A part of a configuration from a page, inserted into a whole file that can be checked.

The keys of the part show to which section it belongs, because each section's model knows its keys.
Later parts of a page are added to the earlier ones, as a reader adds them to one file: an entry of
a list replaces the entry of the same name.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from appliance.config.document import read_document
from appliance.config.faults import ConfigFaults
from appliance.config.load import FORMATS_FOLDER, LoadedConfig, load_text
from appliance.config.model import ClusterSection, MillConfig, TopicSection
from appliance.mill.home import CODE
from collector.config.input_section import InputSection
from collector.config.settings import CollectorSection
from monitor.config.alert_rules import AlertsSection, RuleSection
from monitor.config.settings import MonitorSection
from stream.config.format_files import Format
from stream.config.input_section import ParsedInputSection
from stream.config.sections import DefaultsSection, MetricSection
from stream.config.settings import StreamSection
from tests.harness.certificates import new_test_authority
from tests.harness.pages import Block, blocks_of

Values = dict[str, Any]

# The sections, with the path of each. A part belongs to the first section that has its keys.
SECTIONS: tuple[tuple[type[BaseModel], tuple[str, ...]], ...] = (
    (MillConfig, ()),
    (StreamSection, ("stream",)),
    (DefaultsSection, ("stream", "defaults")),
    (CollectorSection, ("collector",)),
    (AlertsSection, ("monitor", "alerts")),
    (MonitorSection, ("monitor",)),
    (ClusterSection, ("cluster",)),
)
ENTRIES: tuple[tuple[type[BaseModel], tuple[str, ...]], ...] = (
    (MetricSection, ("stream", "metrics")),
    (InputSection, ("collector", "inputs")),
    (RuleSection, ("monitor", "alerts", "rules")),
    (TopicSection, ("topics",)),
)
NAMES = ("name", "topic")
"""The keys that identify an entry of a list."""
_REFERENCE = re.compile(r"\$\{(file:)?([^}]+)\}")


class Misplaced(Exception):
    """No section of the file has the keys of the part."""


def keys_of(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def read_piece(text: str, source: str) -> Any:
    """Read the values of a part as the configuration file is read. Raises ConfigFaults."""
    is_list = re.match(r"(?:\s*#.*\n)*\s*- ", text) is not None
    document = read_document(f"piece:\n{text}" if is_list else text, source)
    if document.faults:
        raise ConfigFaults(document.faults)
    return document.root["piece"] if is_list else document.root


def is_format(piece: Any) -> bool:
    """Return True if a part is a file of `configs/formats`."""
    return isinstance(piece, dict) and "title" in piece and piece.keys() <= keys_of(Format)


def placed(piece: Any, page: str) -> Values:
    """Return a configuration that has only this part, at its place. Raises Misplaced."""
    if isinstance(piece, list) and all(isinstance(entry, dict) for entry in piece):
        for model, path in ENTRIES:
            if all(entry.keys() <= keys_of(model) for entry in piece):
                return _at(path, piece)
    if isinstance(piece, dict):
        for model, path in SECTIONS:
            if piece.keys() <= keys_of(model):
                return _at(path, piece)
        if all(isinstance(one, dict) and "topic" in one for one in piece.values()):
            return _at(("stream", "from"), piece)
        own = re.sub(r"\W", "_", Path(page).stem.lower())
        if piece.keys() <= keys_of(InputSection):
            made = {"paths": [f"watched/{own}/**"], "topic": f"logs.{own}", **piece}
            return _at(("collector", "inputs"), [made])
        if piece.keys() <= keys_of(ParsedInputSection):
            made = {"topic": f"logs.{own}", "format": "json", **piece}
            return _at(("stream", "from"), {own: made})
    raise Misplaced(f"no section has these keys: {piece}")


def _at(path: tuple[str, ...], values: Any) -> Values:
    for key in reversed(path):
        values = {key: values}
    return dict(values)


def merged(base: Any, piece: Any) -> Any:
    """Return two configurations merged into one. `piece` wins if both set a key."""
    if isinstance(base, dict) and isinstance(piece, dict):
        both = {key: merged(base[key], piece[key]) for key in base.keys() & piece.keys()}
        return {**base, **piece, **both}
    if isinstance(base, list) and isinstance(piece, list):
        names = [_name(entry) for entry in piece]
        kept = [entry for entry in base if _name(entry) is None or _name(entry) not in names]
        return [*kept, *piece]
    return piece


def _name(entry: Any) -> Any:
    found = [entry[key] for key in NAMES if key in entry] if isinstance(entry, dict) else []
    return found[0] if found else entry


def with_writers(config: Values) -> Values:
    """Return the file with a collector input for each topic that only the stream names."""
    inputs = config.get("collector", {}).get("inputs", [])
    names = {one["topic"] for one in config.get("stream", {}).get("from", {}).values()}
    names -= {one["topic"] for one in inputs} | {one["name"] for one in config.get("topics", [])}
    if not names or any("{" in one["topic"] for one in inputs):
        return config
    made = [{"paths": [f"watched/{name}/**"], "topic": name} for name in sorted(names)]
    return dict(merged(config, {"collector": {"inputs": made}}))


def shipped() -> Values:
    """Return the values of the shipped configuration."""
    return read_document((CODE / "configs" / "millrace.yaml").read_text(), "the shipped file").root


def page_configs(page: str, home: Path) -> Iterable[tuple[Block, LoadedConfig]]:
    """Yield each YAML block of a page with the checked file that the page has built up so far.

    Raises ConfigFaults and Misplaced. Formats of the user are written into `home`.
    """
    config = shipped()
    for block in blocks_of(page):
        if block.language != "yaml":
            continue
        piece = read_piece(block.text, block.place)
        if is_format(piece):
            write_format(block.text, block.place, home)
        else:
            config = with_writers(merged(config, placed(piece, page)))
        yield block, checked(config, block.place, home)


def write_format(text: str, place: str, home: Path) -> None:
    """Write a format into the formats folder. Its first line must be `# configs/formats/NAME.yaml`,
    otherwise raise Misplaced."""
    named = re.match(r"# configs/formats/(\w+\.yaml)\n", text)
    if named is None:
        raise Misplaced(f"{place}: expected a first line `# configs/formats/NAME.yaml`")
    path = home / FORMATS_FOLDER / named[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def checked(config: Mapping[str, Any], source: str, home: Path) -> LoadedConfig:
    """Check a whole file. Create the files and variables to which the file refers."""
    text = json.dumps(config)
    environ = {}
    for is_file, name in _REFERENCE.findall(text):
        if not is_file:
            environ[name] = "from-the-environment"
            continue
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("https://example.org/from-a-file")
    security = config.get("cluster", {}).get("security") or {}
    if ca := security.get("ca"):
        new_test_authority(home).file.rename(home / ca)
    return load_text(text, source, home, environ)

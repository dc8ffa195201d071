"""Load the configuration file: parse, apply overrides, replace references, check all sections.

Only the file itself, the files that `${file:…}` names and the file of CAs in `cluster.security` are
read. The result is a `LoadedConfig`, or an exception with all faults.
"""

import copy
import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from pydantic import ValidationError

from appliance.config.cross import check_all, notes_on
from appliance.config.document import Document, read_document
from appliance.config.faults import ConfigFault, ConfigFaults, Path
from appliance.config.findings import finding
from appliance.config.inputs import apply_overrides, file_named_by, file_reader, substitute
from appliance.config.model import MillConfig
from appliance.config.published import Published, WrongAddress, published_of
from appliance.config.sound import FaultyConfig, sound_rest
from stream.config.format_files import Format, FormatFault, load_formats, users_formats

FORMATS_FOLDER = FilePath("configs") / "formats"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A checked configuration, and the origin of its values."""

    config: MillConfig
    document: Document
    references: Mapping[Path, str]
    """The original text of every value that had a reference `${…}`."""
    notes: tuple[str, ...] = ()
    """Notes on settings that are valid but have no effect."""
    data: bytes = b""
    """The bytes of the file that was read. Copy or hash these instead of reading the file again.

    The file can change between two reads. `Mill.sha256` is the hash of these bytes.
    """


def load(path: FilePath, home: FilePath, environ: Mapping[str, str] | None = None) -> LoadedConfig:
    """Read and check a configuration file; raises ConfigFaults with everything that is wrong.

    A missing file is a fault, because a mill that runs with defaults would surprise the user.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "no file").lower()
        raise ConfigFaults(
            [ConfigFault(_shown(path), 0, 0, "(the file)", reason, "a file that can be read")]
        ) from error
    return load_bytes(data, path, home, environ)


def load_bytes(
    data: bytes, path: FilePath, home: FilePath, environ: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Check a configuration as `load` does, from the bytes of the file.

    A caller that needs the bytes later must keep them, because the file can change in the meantime.
    """
    source = _shown(path)
    try:
        text = io.StringIO(data.decode(), newline=None).read()
    except UnicodeDecodeError as error:
        place = f"a byte at {error.start} that is not UTF-8"
        raise ConfigFaults(
            [ConfigFault(source, 0, 0, "(the file)", place, "UTF-8 text")]
        ) from error
    loaded = load_text(text, source, home, os.environ if environ is None else environ)
    return replace(loaded, data=data)


def load_text(text: str, source: str, home: FilePath, environ: Mapping[str, str]) -> LoadedConfig:
    """Check a configuration as `load` does, from a text. Raises FaultyConfig or ConfigFaults."""
    document = read_document(text, source)
    apply_overrides(document, environ, MillConfig.model_fields)
    references = substitute(document, environ, file_reader(home))
    # An empty section (`collector:` and nothing below) means its defaults.
    given = {key: {} if value is None else value for key, value in document.root.items()}
    wrong: set[Path] = set()
    formats = _users_formats(home)
    try:
        with users_formats(formats):
            config = MillConfig.model_validate(given)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            path, found, expected, is_key = finding(details, MillConfig)
            if path in references:
                found = f"what stands behind {references[path]}"
            document.add(path, found, expected, key=is_key)
        with users_formats(formats):
            config, wrong = without_faults(given)
    check_all(config, document, home=str(home), published=_published(environ), wrong=wrong)
    if document.faults:
        with users_formats(formats):
            raise FaultyConfig(document, sound_rest(given, config, document.faulty))
    _note_password_file(config, references, home)
    return LoadedConfig(config, document, references, notes_on(config))


def _published(environ: Mapping[str, str]) -> Published | None:
    """Return what compose publishes. Raises ConfigFaults."""
    try:
        return published_of(environ)
    except WrongAddress as error:
        found, _, expected = str(error).removeprefix("found ").partition(", expected ")
        fault = ConfigFault("the environment", 0, 0, error.variable, found, expected)
        raise ConfigFaults([fault]) from error


def _note_password_file(config: MillConfig, references: Mapping[Path, str], home: FilePath) -> None:
    """Store the file that has the password of `cluster.security`, so that parts can read it again
    after the password was changed."""
    name = file_named_by(references.get(("cluster", "security", "password"), ""))
    if config.cluster.security is not None and name is not None:
        config.cluster.security.note_password_file(str(home.absolute() / name))


def without_faults(given: Mapping[str, object]) -> tuple[MillConfig, set[Path]]:
    """Return the configuration without the values that have faults, and the paths of these values.

    A fault within a list leaves out the whole list, because without one entry the other entries
    would have other indices.
    """
    values, left_out = copy.deepcopy(dict(given)), set[Path]()
    while True:
        try:
            return MillConfig.model_validate(values), left_out
        except ValidationError as error:
            for path in {_last_key(values, details["loc"]) for details in error.errors()}:
                _remove(values, path)
                left_out.add(path)


def _last_key(values: dict[str, object], path: Path) -> Path:
    """Return the longest prefix of a path that exists in the nested mappings."""
    node: object = values
    for length, step in enumerate(path):
        if not isinstance(node, dict) or step not in node:
            return path[:length]
        node = node[step]
    return path


def _remove(values: dict[str, object], path: Path) -> None:
    """Remove a key, unless a mapping around it has been removed already."""
    node: object = values
    for step in path[:-1]:
        node = node.get(step) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(path[-1], None)


def _users_formats(home: FilePath) -> Mapping[str, Format]:
    """Return the formats that the user has put into the folder of the configuration. Raises
    ConfigFaults.
    """
    try:
        return load_formats([home / FORMATS_FOLDER])
    except FormatFault as error:
        expected = "a format as described in configs/formats/README.md"
        fault = ConfigFault(_shown(error.path), 0, 0, "(the file)", error.reason, expected)
        raise ConfigFaults([fault]) from error


def digest_of(data: bytes, environ: Mapping[str, str] | None = None) -> str:
    """Return a digest of the file's bytes and of the overrides in the environment."""
    environ = os.environ if environ is None else environ
    digest = hashlib.sha256(data)
    for name in sorted(environ):
        if name.startswith("MILLRACE_") and "__" in name:
            digest.update(f"\0{name}={environ[name]}".encode())
    return digest.hexdigest()[:16]


def _shown(path: FilePath) -> str:
    """Return the path to show to the user: relative to the current folder if that is shorter."""
    try:
        return str(path.relative_to(FilePath.cwd()))
    except ValueError:
        return str(path)

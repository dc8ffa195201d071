"""Replaces references (`${VAR}`, `${file:path}`), and applies overrides from environment variables
(MILLRACE_…).

This module is pure, except for the function that reads the files of `${file:…}`. The original text
of each replaced value is kept, so that `config show` prints the reference and never the secret.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath

from appliance.config.document import Document, SourceMark, read_scalar
from appliance.config.faults import Path, did_you_mean, found_text

PREFIX = "MILLRACE_"
OTHER_VARIABLES = {
    "MILLRACE_HOME": "the folder that holds configs, watched and data",
    "MILLRACE_CONFIG": "the configuration file, if not configs/millrace.yaml in the home",
    "MILLRACE_EDITED_CONFIG": "set by `up`: the file that the supervisor's copy was made from",
    "MILLRACE_PUBLISHED": "loopback: parts run in containers whose ports are on loopback only",
    "MILLRACE_PUBLISHED_BROKER": "set by `docker-compose.hosts.yml`: where it publishes BROKER",
    "MILLRACE_PUBLISHED_HOST": "set by `docker-compose.hosts.yml`: the profile of this host",
    "MILLRACE_PUBLISHED_KAFKA": "set by `docker-compose.open.yml` or `docker-compose.hosts.yml`:"
    " where it publishes NET",
    "MILLRACE_PUBLISHED_PAGE": "set by `docker-compose.open-page.yml`: where it publishes the page",
    "MILLRACE_PUBLISHED_REDIS": "set by `docker-compose.open-redis.yml`: where it publishes Redis",
    "MILLRACE_PUBLISHED_MYSQL": "set by `docker-compose.open-mysql.yml`: where it publishes MySQL",
    "MILLRACE_SEED": "replays a random test",
    "MILLRACE_SHARED": "the folder of shared sample logs, for tests",
}
FILE_BYTES_MAX = 64 * 1024

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_FILE = re.compile(r"\$\{file:([^}]*)\}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def apply_overrides(
    document: Document, environ: Mapping[str, str], sections: Mapping[str, object]
) -> None:
    """Apply `MILLRACE_SECTION__KEY=value` over the file's values; values are parsed as YAML.

    An entry of a list is named by its index. If a variable does not begin with the name of a
    section but contains `__`, it is a fault, because such a name can only be meant for Millrace.
    Every other MILLRACE_… variable is ignored.
    """
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        steps = name.removeprefix(PREFIX).lower().split("__")
        if steps[0] not in sections:
            if len(steps) > 1:
                mark = SourceMark(f"environment variable {name}")
                document.keys[(steps[0],)] = mark
                known = sorted(sections)
                document.add(
                    (steps[0],),
                    found_text(steps[0]),
                    f"one of {', '.join(known)}{did_you_mean(steps[0], known)}",
                    key=True,
                )
            continue
        path: Path = tuple(int(step) if step.isdigit() else step for step in steps)
        _put(document, path, read_scalar(environ[name]), SourceMark(f"environment variable {name}"))


def _put(document: Document, path: Path, value: object, mark: SourceMark) -> None:
    target: object = document.root
    for length, step in enumerate(path[:-1], start=1):
        following: object = None
        if isinstance(target, dict):
            following = target.setdefault(step, {})
            if following is None:
                following = target[step] = {}
        elif isinstance(target, list) and isinstance(step, int) and step < len(target):
            following = target[step]
        if not isinstance(following, dict | list):
            document.values[path] = mark
            document.add(
                path, "no section or entry that could contain it", f"a mapping at {path[:length]}"
            )
            return
        target = following
    last = path[-1]
    if isinstance(target, dict):
        target[str(last)] = value
    elif isinstance(target, list) and isinstance(last, int) and last < len(target):
        target[last] = value
    else:
        document.values[path] = mark
        document.add(path, "no such entry in the list", "a position that exists in the file")
        return
    document.keys[path] = document.values[path] = mark
    for known in [p for p in document.values if p[: len(path)] == path and p != path]:
        document.keys.pop(known, None)
        document.values[known] = mark


def substitute(
    document: Document,
    environ: Mapping[str, str],
    read_file: Callable[[str], str],
) -> dict[Path, str]:
    """Replace `${NAME}` and `${file:path}` in all values of the document.

    Return the original text of each changed value by its path. A reference that cannot be resolved
    becomes a finding of the document.
    """
    originals: dict[Path, str] = {}

    def replace(text: str, path: Path) -> str:
        def one(match: re.Match[str]) -> str:
            reference = match[1]
            if reference is None:
                return "${"
            try:
                value = _resolve(reference, environ, read_file)
            except ValueError as error:
                found, _, expected = str(error).partition("|")
                document.add(path, found, expected)
                return ""
            originals[path] = text
            return value

        return _REFERENCE.sub(one, text)

    def walk(value: object, path: Path) -> object:
        if isinstance(value, str):
            return replace(value, path)
        if isinstance(value, dict):
            return {key: walk(child, (*path, key)) for key, child in value.items()}
        if isinstance(value, list):
            return [walk(child, (*path, index)) for index, child in enumerate(value)]
        return value

    document.root = {key: walk(value, (key,)) for key, value in document.root.items()}
    return originals


def file_named_by(text: str) -> str | None:
    """Return the file of a text that is only `${file:path}`; None for any other text."""
    match = _FILE.match(text)
    return None if match is None else match[1].strip()


def _resolve(reference: str, environ: Mapping[str, str], read_file: Callable[[str], str]) -> str:
    if reference.startswith("file:"):
        name = reference.removeprefix("file:").strip()
        try:
            return read_file(name).removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no UTF-8 text"
            raise ValueError(f"${{{reference}}} ({reason})|a file that can be read") from error
    if not _VARIABLE.match(reference):
        raise ValueError(f"${{{reference}}}|${{NAME}} or ${{file:path}}; a plain ${{ is $${{")
    if reference not in environ:
        raise ValueError(f"${{{reference}}}, which is not set|an environment variable that is set")
    return environ[reference]


def file_reader(home: FilePath) -> Callable[[str], str]:
    """Return a function that reads the file of `${file:path}`, relative to the mill's home. The
    file must have a single line of limited length."""

    def read(name: str) -> str:
        with (home / name).open(encoding="utf-8") as file:
            return file.read(FILE_BYTES_MAX)

    return read

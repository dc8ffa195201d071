"""Finds the broker's compiled code, and compiles it: `make native`.

mypyc compiles the modules with the most work per request to C. The compiled files are in a folder
of their own, beside a copy of the sources of `broker` and `protocol`. A broker runs this copy only
while it has the checksum of the mill's own sources, so changed sources are never hidden by older
compiled files. A copy that lost files, or that was made on a system with another C library, is not
used either. Without the folder brokers run the same code interpreted. Decision 0233 has the
figures.
"""

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from appliance.errors import Failure
from appliance.mill.home import CODE
from protocol.log import configure, fields

logger = logging.getLogger(__name__)

PACKAGES = ("broker", "protocol")
"""The packages in the compiled copy. They import no other package of the mill."""

CHECKSUM = "checksum"
"""The file with the checksum of the copy, as `checksum` returns it."""

MODULES = (
    "broker/alarm.py",
    "broker/produce/batch_validator.py",
    "broker/produce/fast_path.py",
    "broker/produce/pending.py",
    "broker/produce/produces.py",
    "broker/purgatory.py",
    "broker/replicas/replica.py",
    "broker/replicas/replicas.py",
    "broker/replication/leader.py",
    "broker/replication/partition.py",
    "broker/sessions/call.py",
    "broker/sessions/dispatch.py",
    "broker/sessions/login_session.py",
    "broker/sessions/pipeline.py",
    "broker/sessions/reception.py",
    "broker/sessions/session.py",
    "broker/sessions/sessions.py",
    "broker/storage/index_files.py",
    "broker/storage/log.py",
    "broker/storage/log_writer.py",
    "broker/storage/producer_state.py",
    "broker/storage/segment.py",
    "broker/storage/segments.py",
    "broker/storage/validation.py",
    "protocol/wire/batch_header.py",
    "protocol/wire/frame.py",
    "protocol/wire/primitives.py",
    "protocol/wire/reader.py",
    "protocol/wire/record.py",
    "protocol/wire/records.py",
    "protocol/wire/writer.py",
)
"""The modules that are compiled.

A class whose base class is compiled must be compiled too. `broker/replicas/flusher.py` cannot be
compiled: mypyc 2.4 loses a variable of a nested function that another nested function uses.
"""

TYPE_SETTINGS = """[mypy]
strict = true
[mypy-cramjam.*,crc32c.*,isal.*,lz4.*,uvloop.*,zstandard.*]
ignore_missing_imports = true
"""

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(
    ["--config-file", "mypy.ini", *sys.argv[1:]], opt_level="1", debug_level="0", multi_file=True
)
options = ["--quiet", "build_ext", "--inplace"]
setup(name="native", packages=[], py_modules=[], ext_modules=modules, script_args=options)
"""

OUTPUT_CHARACTERS_MAX = 2_000
"""The longest end of a compiler's output that an error shows."""


@dataclass(frozen=True, slots=True)
class Native:
    """The compiled copy of a mill's code. `is_current` is False if the sources have changed since
    it was made, or if the copy is damaged."""

    folder: Path
    is_current: bool


def folder_of(code: Path) -> Path:
    """Return the folder for the compiled copy, whether or not it exists."""
    return code / ".cache" / "native"


def python_path(code: Path) -> str:
    """Return the PYTHONPATH of a broker: with the compiled copy in front if it is current."""
    found = find(code)
    if found is None or not found.is_current:
        return str(code)
    return f"{found.folder}{os.pathsep}{code}"


def find(code: Path = CODE) -> Native | None:
    """Return the compiled copy of the code in a folder; None if there is none."""
    folder = folder_of(code)
    try:
        stored = (folder / CHECKSUM).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    try:
        is_current = stored == checksum(code, folder)
    except OSError:
        # A file was removed in this moment, or this user may not read it.
        is_current = False
    return Native(folder, is_current)


def checksum(code: Path, folder: Path) -> str:
    """Return a checksum of the packages' sources in `code`, this Python, this kind of machine, and
    the sizes of the files in the copy in `folder`.

    The contents of the copy are not read, because this would double the time. A crash of the
    machine can leave files without their contents. Raises OSError.
    """
    libc = " ".join(platform.libc_ver())
    tag = f"{sys.implementation.cache_tag} {platform.system()} {platform.machine()} {libc}"
    digest = hashlib.sha256(tag.encode())
    for path in _sources(code):
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(code)} {len(content)}\n".encode() + content)
    for path in sorted((*_sources(folder), *folder.rglob("*.so"))):
        digest.update(f"\n{path.relative_to(folder)} {path.stat().st_size}".encode())
    return digest.hexdigest()


def _sources(code: Path) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (code / package).rglob("*.py"))


def make(code: Path = CODE) -> Path:
    """Compile the code in a folder, and replace an earlier copy. Return the copy's folder.

    A broker that runs keeps the files that it has loaded. Raises Failure.
    """
    _check_tools()
    logger.info("compiling", extra=fields(modules=len(MODULES), mypyc=version("mypy")))
    place = folder_of(code)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="native-", dir=place.parent) as name:
        partial = Path(name) / place.name
        for source in _sources(code):
            copy = partial / source.relative_to(code)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        _compile(partial)
        stamp = checksum(partial, partial)
        (partial / CHECKSUM).write_text(stamp, encoding="ascii")
        if stamp != checksum(code, partial):
            raise Failure("the sources changed while they were compiled; run `make native` again")
        earlier = Path(name) / "earlier"
        if place.exists():
            place.rename(earlier)
        partial.rename(place)
    return place


def _check_tools() -> None:
    """Raise Failure if a tool is missing, with what to install."""
    if find_spec("mypyc") is None or find_spec("setuptools") is None:
        raise Failure("compiling needs the Python packages mypy and setuptools (`make setup-dev`)")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise Failure(
            f"compiling needs the C compiler {compiler}, which was not found; install it, on Debian"
            " with `apt-get install gcc libc6-dev`"
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        raise Failure(
            f"compiling needs Python's headers, and {header} is missing; install them, on Debian"
            " with `apt-get install python3-dev`"
        )


def _compile(folder: Path) -> None:
    """Compile the modules of a copy in place. Raises Failure."""
    (folder / "mypy.ini").write_text(TYPE_SETTINGS, encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *MODULES],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        end = done.stdout[-OUTPUT_CHARACTERS_MAX:]
        raise Failure(f"the code was not compiled; the compiler's output ends with:\n{end}")
    for name in "build", ".mypy_cache":
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "mypy.ini").unlink()


def main() -> int:
    """Compile the mill's code unless the compiled copy is current. Return the exit code."""
    configure("native")
    found = find()
    if found is not None and found.is_current:
        logger.info("the compiled code is current", extra=fields(folder=found.folder))
        return 0
    try:
        folder = make()
    except (Failure, OSError) as error:
        logger.error("the code was not compiled; brokers run interpreted", extra=fields(why=error))
        return 1
    logger.info("compiled; brokers that start now run this code", extra=fields(folder=folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

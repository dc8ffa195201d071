"""Finds a Java runtime that Spark can use."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MAJOR_MIN = 17
_VERSION = re.compile(r'version "(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: the folder above its `bin`, and its major version."""

    home: Path
    major: int


def find_java() -> Java | None:
    """The first runtime of MAJOR_MIN or later: JAVA_HOME, then PATH, then the system's folder."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    candidates.extend(sorted(Path("/usr/lib/jvm").glob("*/bin/java")))
    for candidate in candidates:
        major = major_version(candidate)
        if major is not None and major >= MAJOR_MIN:
            return Java(candidate.resolve().parents[1], major)
    return None


def major_version(java: Path) -> int | None:
    """The major version a `java` program tells; None when it does not run.

    The release file beside it says the same without starting a JVM.
    """
    release = java.resolve().parents[1] / "release" if java.exists() else None
    if release is not None and release.is_file():
        found = re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace"))
        if found:
            return int(found[1])
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None

"""Find a Java runtime that Spark can use."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MAJOR_MIN = 17
_VERSION = re.compile(r'version "(\d+[\d.]*)')


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime: its home folder and its version."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".")[0])


def find_java() -> JavaRuntime | None:
    """Find the first runtime of MAJOR_MIN or later: JAVA_HOME, then PATH, then the system's
    folder."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    candidates.extend(sorted(Path("/usr/lib/jvm").glob("*/bin/java")))
    for candidate in candidates:
        version = version_of(candidate)
        if version is not None and int(version.split(".")[0]) >= MAJOR_MIN:
            return JavaRuntime(candidate.resolve().parents[1], version)
    return None


def version_of(java: Path) -> str | None:
    """Return the version of a `java` program; None if it does not run.

    The `release` file beside it has the version too, so no JVM needs to start.
    """
    release = java.resolve().parents[1] / "release" if java.exists() else None
    if release is not None and release.is_file():
        found = re.search(r'JAVA_VERSION="(\d+[\d.]*)', release.read_text(errors="replace"))
        if found:
            return found[1]
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return found[1] if found else None

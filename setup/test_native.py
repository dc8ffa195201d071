"""Run the tests of the broker with the compiled code: `make test-native`.

It copies the tracked files to a folder of their own, with the compiled files of `make native`
beside their sources, and runs pytest there. So everything that the tests import or start is
compiled. Tests with the marker `interpreted` are left out.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / ".cache" / "native"
TREE = ROOT / ".cache" / "native-tests"

TESTS = ("tests/unit/broker", "tests/unit/client", "tests/unit/protocol", "tests/unit/storage",
         "tests/sim", "tests/interop")  # fmt: skip
"""The folders of tests that run the broker or the wire protocol. The command line can name
others."""

LINKS = (".venv", ".cache")


def copy_tree() -> None:
    """Make the folder with the sources and the compiled files."""
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    names = [
        name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()
    ]
    compiled = [str(path.relative_to(NATIVE)) for path in NATIVE.rglob("*.so")]
    for source, group in ((ROOT, names), (NATIVE, compiled)):
        for name in group:
            copy = TREE / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, copy)
    for name in LINKS:
        (TREE / name).symlink_to(ROOT / name)


def main(arguments: list[str]) -> int:
    """Run the tests. Return pytest's exit code."""
    copy_tree()
    command = [str(TREE / ".venv/bin/python"), "-m", "pytest", *(arguments or TESTS)]
    command += ["-m", "not slow and not interpreted", "-n", "2"]
    return subprocess.run(command, cwd=TREE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

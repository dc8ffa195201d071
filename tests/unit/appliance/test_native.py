"""Compiled code is used exactly as long as it fits the sources."""

import ast
import logging
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from appliance.checks.startup import CheckLevel
from appliance.cli import doctor
from appliance.errors import Failure
from appliance.launch import native
from appliance.mill.home import CODE, Home

SUM = "def total(numbers: list[int]) -> int:\n    return sum(numbers)\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The code of a mill whose packages have one module each."""
    for package in native.PACKAGES:
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "sums.py").write_text(SUM)
    return tmp_path


@pytest.fixture
def copied(code: Path) -> Path:
    """The same code with a copy whose compiled file is empty."""
    make_copy(code)
    return code


def make_copy(code: Path) -> Path:
    folder = native.folder_of(code)
    for package in native.PACKAGES:
        shutil.copytree(code / package, folder / package)
    (folder / "broker/sums.so").touch()
    (folder / native.CHECKSUM).write_text(native.checksum(code, folder))
    return folder


def imported(code: Path) -> Path:
    """Return the file that a part imports for a module of the broker."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from broker import sums; print(sums.__file__)"],
        cwd=code,
        env={**os.environ, "PYTHONPATH": native.python_path(code)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def test_without_a_copy_the_sources_run(code: Path) -> None:
    assert native.find(code) is None
    assert native.python_path(code) == str(code)


def test_a_copy_of_these_sources_is_used(copied: Path) -> None:
    folder = native.folder_of(copied)
    assert native.find(copied) == native.Native(folder, is_current=True)
    assert native.python_path(copied) == f"{folder}{os.pathsep}{copied}"


@pytest.mark.parametrize("package", native.PACKAGES)
def test_a_changed_source_is_not_hidden(copied: Path, package: str) -> None:
    (copied / package / "sums.py").write_text(SUM.replace("sum(", "len("))
    assert native.find(copied) == native.Native(native.folder_of(copied), is_current=False)
    assert native.python_path(copied) == str(copied)


def test_a_moved_source_is_not_hidden(copied: Path) -> None:
    (copied / "broker/sums.py").rename(copied / "broker/others.py")
    assert native.python_path(copied) == str(copied)


@pytest.mark.parametrize("content", [b"", b"\xff"])
def test_a_broken_checksum_is_not_trusted(copied: Path, content: bytes) -> None:
    (native.folder_of(copied) / native.CHECKSUM).write_bytes(content)
    assert native.python_path(copied) == str(copied)


def test_a_copy_that_lost_a_file_is_not_used(copied: Path) -> None:
    """A broker that has only a part of the compiled files does not start."""
    (native.folder_of(copied) / "broker/sums.so").unlink()
    assert native.python_path(copied) == str(copied)


@pytest.mark.parametrize("name", ["broker/sums.so", "protocol/sums.py"])
def test_a_copy_whose_files_lost_their_contents_is_not_used(copied: Path, name: str) -> None:
    (native.folder_of(copied) / name).write_text("half")
    assert native.python_path(copied) == str(copied)


def test_a_copy_of_another_c_library_is_not_used(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17"))
    assert native.python_path(copied) == str(copied)


def test_a_source_that_vanishes_while_it_is_read_does_not_stop_a_broker(copied: Path) -> None:
    """Editors put such links beside open files."""
    (copied / "broker/.#sums.py").symlink_to("editor@host.1")
    assert native.python_path(copied) == str(copied)


@pytest.mark.live
def test_sources_are_compiled_and_compiled_again(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MODULES", ("broker/sums.py", "protocol/sums.py"))
    assert imported(code) == code / "broker/sums.py"
    folder = native.make(code)
    assert imported(code).parent == folder / "broker"
    assert imported(code).suffix == ".so"
    with (code / "broker/sums.py").open("a") as source:
        source.write("NAME = 'changed'\n")
    assert imported(code) == code / "broker/sums.py"
    native.make(code)
    assert imported(code).suffix == ".so"
    assert [path.name for path in native.folder_of(code).parent.iterdir()] == ["native"]


def test_a_module_that_cannot_be_compiled_leaves_the_earlier_copy(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MODULES", ("broker/sums.py",))
    (copied / "broker/sums.py").write_text("def total(numbers: list[int]) -> str:\n    return 1\n")
    with pytest.raises(Failure, match="Incompatible return value"):
        native.make(copied)
    found = native.find(copied)
    assert found is not None and not found.is_current


def test_a_missing_compiler_is_named(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Failure, match="C compiler"):
        native.make(code)


def test_missing_packages_are_named(
    code: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def without(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(native, "find", lambda: None)
    monkeypatch.setattr(native, "configure", lambda part: None)
    monkeypatch.setattr(native, "version", without)
    monkeypatch.setattr(native, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        assert native.main() == 1
    told = vars(caplog.records[-1])["mill_fields"]
    assert "make setup-dev" in str(told["why"])


def test_all_modules_exist() -> None:
    assert [name for name in native.MODULES if not (CODE / name).is_file()] == []


def test_every_heir_of_a_compiled_class_is_compiled() -> None:
    """If one of them were interpreted, the broker would not start."""
    made: set[str] = set()
    heirs: dict[str, set[str]] = {}
    for package in native.PACKAGES:
        for path in (CODE / package).rglob("*.py"):
            name = str(path.relative_to(CODE))
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ClassDef):
                    continue
                if name in native.MODULES:
                    made.add(node.name)
                else:
                    heirs[f"{name} {node.name}"] = {ast.unparse(base) for base in node.bases}
    assert made
    assert [heir for heir, bases in heirs.items() if bases & made] == []


def compiled_rows(code: Path) -> list[tuple[CheckLevel, str]]:
    home = Home(code, code / "configs/millrace.yaml", code)
    return [(check.level, check.found) for check in doctor._compiled_code(home)]


def test_doctor_says_whether_compiled_code_is_used(code: Path) -> None:
    assert compiled_rows(code) == []
    folder = make_copy(code)
    assert compiled_rows(code) == [(CheckLevel.OK, str(folder))]
    (code / "protocol/sums.py").write_text("")
    [(level, found)] = compiled_rows(code)
    assert level is CheckLevel.WARNING and "other sources" in found

"""The laws applied to every file of the tree, and the laws that need more than one file."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.house import circles, cores, laws, named, tree, unused


@pytest.mark.parametrize("law", laws.MODULE_LAWS, ids=lambda law: law.__name__)
def test_modules_keep_the_law(law: Callable[[tree.Module], Iterator[str]]) -> None:
    broken = [sentence for module in tree.modules() for sentence in law(module)]
    assert not broken, f"{law.__doc__}\n" + "\n".join(broken)


@pytest.mark.parametrize("law", laws.TEXT_LAWS, ids=lambda law: law.__name__)
def test_texts_keep_the_law(law: Callable[[str, str], Iterator[str]]) -> None:
    broken = [
        sentence
        for path, text in tree.texts()
        if path not in laws.EXEMPT_TEXTS
        for sentence in law(path, text)
    ]
    assert not broken, f"{law.__doc__}\n" + "\n".join(broken)


def product() -> list[tree.Module]:
    """Return the files that are not tests."""
    return [module for module in tree.modules() if module.room != "tests"]


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles.circles(product()) == []


def templates() -> list[str]:
    """Return the text of the product's other files, in which functions can be named."""
    return [text for path, text in tree.texts() if path.endswith((".html", ".js", ".css"))]


def test_no_name_is_unused() -> None:
    assert unused.unused(product(), templates()) == []


def test_every_core_that_house_names_keeps_the_law_of_cores() -> None:
    told = cores.told_by((tree.ROOT / "HOUSE.md").read_text())
    assert len(told) > 20
    assert cores.unkept(told, {one.path for one in tree.modules()}) == ([], [])


def test_every_file_and_folder_that_a_page_names_exists() -> None:
    pages = {path: text for path, text in tree.texts() if path.endswith(".md")}
    assert "docs/decisions/0034-an-expression-ends-on-every-line.md" in pages
    assert list(named.gone(pages, tree.files())) == []


def test_every_pure_core_that_is_listed_exists() -> None:
    listed = {f"{room}/{name}" for room, names in cores.PURE.items() for name in names}
    paths = {module.path for module in tree.modules()}
    known = {path.removesuffix(".py") for path in paths} | {p.rsplit("/", 1)[0] for p in paths}
    assert listed - known == set()


def test_tests_of_the_broker_lie_in_the_room_of_what_they_test() -> None:
    """`tests/unit/broker` mirrors `broker`. Only shared helpers and the tests of ground modules are
    directly in it."""
    rooms = laws.BROKER_FLOORS.keys() - {"", "storage"}
    places = [one.parts[3:] for one in tree.modules() if one.path.startswith("tests/unit/broker/")]
    assert {parts[0] for parts in places if len(parts) > 1} == rooms
    flat = [name for name, *inner in places if name.startswith("test_") and not inner]
    grounds = {f"test_{name}" for name in laws.GROUND_MODULES["broker"]}
    assert [name for name in flat if name not in grounds] == [], "these belong into a room"


def test_every_file_is_python() -> None:
    assert tree.unreadable() == []


def test_the_tree_is_seen() -> None:
    rooms = {module.room for module in tree.modules()}
    assert {"protocol", "appliance", "tests"} <= rooms
    assert len(tree.modules()) > 20


def test_a_broker_process_stays_light() -> None:
    """The test starts a real process, because indirect imports count as well."""
    program = (
        "import sys, broker.__main__\n"
        f"print(sorted(set(sys.modules) & {laws.HEAVY | {'yaml', 'http.client', 'redis'}!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree.ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def pins(name: str) -> dict[str, str]:
    text = (tree.ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def test_development_packages_hold_the_runtime_ones() -> None:
    """`make test` installs the development packages beside a running mill. This must not change the
    version of a package that the mill uses."""
    runtime, development = pins("runtime.txt"), pins("dev.txt")
    assert runtime
    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("name", ["build.txt", "runtime.txt", "dev.txt"])
def test_every_package_is_pinned_by_hash_and_without_address(name: str) -> None:
    text = (tree.ROOT / "requirements" / name).read_text()
    entries = [e for e in re.split(r"\n(?=\S)", text) if e and not e.startswith("#")]
    assert entries
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_setup_compiles_every_room_the_mill_runs() -> None:
    """Python would compile a room that is missing in setup.sh at each start."""
    text = (tree.ROOT / "setup" / "setup.sh").read_text()
    compiled = re.findall(r"^rooms=\((.*)\)$", text, re.MULTILINE)
    assert [line.split() for line in compiled] == [sorted(set(tree.ROOMS) - {"bench", "tests"})]


def make_targets() -> list[str]:
    text = (tree.ROOT / "Makefile").read_text()
    return re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE)


def test_the_texts_name_every_make_target() -> None:
    written = [text for path, text in tree.texts() if path.endswith(".md")]
    wanted = [target for target in make_targets() if target != "help"]
    assert len(wanted) >= 8
    missing = [target for target in wanted if not any(f"make {target}" in t for t in written)]
    assert missing == [], "no text says what these are for"

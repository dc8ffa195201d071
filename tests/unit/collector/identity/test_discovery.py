"""Which paths a glob matches."""

import pytest

from collector.config.globs import wildcard_count
from collector.config.input_section import InputSection
from collector.identity.discovery import Pattern, is_matched, plan, record_key


def pattern(glob: str, **keys: object) -> Pattern:
    section = InputSection.model_validate({"paths": [glob], "topic": "t", **keys})
    return plan([section], "/mill")[0]


@pytest.mark.parametrize(
    ("glob", "root", "yes", "no"),
    [
        ("watched/access/**", "/mill/watched/access", ["a", "b/c.log", "b/c/d"], ["", "b/"]),
        ("watched/*.log", "/mill/watched", ["a.log", ".log"], ["a.txt", "b/a.log", "a.log/x"]),
        ("logs/**/app-?.log", "/mill/logs", ["app-1.log", "x/y/app-z.log"], ["app-12.log"]),
        ("/var/log/[!a-c]*", "/var/log", ["x", "zz"], ["abc", "x/y", "/"]),
        ("/var/log/[.]x[*]", "/var/log", [".x*"], ["axx", ".xx"]),
        ("logs/*/current", "/mill/logs", ["a/current"], ["current", "a/b/current"]),
        ("logs/a.b", "/mill/logs/a.b", [""], ["a.b"]),
    ],
)
def test_glob(glob: str, root: str, yes: list[str], no: list[str]) -> None:
    found = pattern(glob)
    assert found.root == root
    assert [below for below in yes if not found.matches(below)] == []
    assert [below for below in no if found.matches(below)] == []


@pytest.mark.parametrize("home", ["/mill", "/srv/[a] b*?/mill"])
def test_a_folder_of_the_mill_is_no_part_of_a_glob(home: str) -> None:
    section = InputSection.model_validate({"paths": ["watched/*/x.log"], "topic": "t"})
    [found] = plan([section], home)
    assert found.root == f"{home}/watched"
    assert found.wildcards(f"{home}/watched/web/x.log") == ("web",)


@pytest.mark.parametrize(
    ("glob", "path", "words"),
    [
        ("watched/*/*.log", "/mill/watched/web/a.b.log", ("web", "a.b")),
        ("watched/**", "/mill/watched/x/y.log", ("x/y.log",)),
        ("logs/**/app-?.log", "/mill/logs/x/y/app-1.log", ("x/y", "1")),
        ("logs/**/app-?.log", "/mill/logs/app-1.log", ("", "1")),
        ("/l/??-[ab]*", "/l/xy-banana", ("xy", "anana")),
        ("/l/*-*", "/l/a-b-c", ("a-b", "c")),
        ("/l/a?b??c", "/l/a1b23c", ("1", "23")),
        ("/l/plain", "/l/plain", ()),
        ("/*/log", "/srv/log", ("srv",)),
        ("/l/*", "/l/x/y", None),
        ("/l/*", "/l/.hidden", None),
        ("/l/plain", "/l/other", None),
    ],
)
def test_what_wildcards_stand_for(glob: str, path: str, words: tuple[str, ...] | None) -> None:
    assert pattern(glob).wildcards(path) == words
    assert is_matched([pattern(glob)], path) == (words is not None)
    assert wildcard_count(glob) == (len(words) if words is not None else glob.count("*"))


@pytest.mark.parametrize(
    ("glob", "folder", "may_hold", "goes_deeper"),
    [
        ("watched/*.log", "x.log", False, False),
        ("watched/*/x", "a", True, False),
        ("watched/*/x", "a/x", False, False),
        ("watched/app-*/cur/*", "app-1/cur", True, False),
        ("watched/app-*/cur/*", "app-1/old", False, False),
        ("watched/app-*/*/*", "app-1", True, True),
        ("watched/**", "/".join("a" * 40), True, True),
        ("watched/**/x.log", "a/x.log", True, True),
        ("watched/a/**/b/*", "c", True, True),
    ],
)
def test_a_walk_enters_only_folders_that_can_hold_matches(
    glob: str, folder: str, may_hold: bool, goes_deeper: bool
) -> None:
    found = pattern(glob)
    segments = found.outset
    for name in folder.split("/"):
        segments = found.below(segments, name)
    assert (bool(segments), found.goes_deeper(segments)) == (may_hold, goes_deeper)


def test_default_exclusions_hold_for_every_name_on_the_way() -> None:
    found = pattern("watched/**")
    for name in (".gitkeep", ".access.log.Xy12", "a.log~", "a.swp", "a.tmp", "a.part", ".git"):
        assert found.excludes(name), name
    assert not found.excludes("a.log")
    assert not pattern("watched/**", exclude=[]).excludes(".gitkeep")


def test_record_key_is_the_path_below_home_without_watched() -> None:
    assert record_key("/mill/watched/access/access.log", "/mill") == "access/access.log"
    assert record_key("/mill/other/a", "/mill") == "other/a"
    assert record_key("/var/log/syslog", "/mill") == "/var/log/syslog"
    assert record_key("/millrace/a", "/mill") == "/millrace/a"

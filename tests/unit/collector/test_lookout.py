"""A scan reports files that no input matches."""

import asyncio
from pathlib import Path

from collector.config.input_section import InputSection
from collector.config.settings import CollectorSection, CollectorSettings
from collector.identity.handles import Handles
from collector.identity.registry import Registry
from collector.lookout import UNMATCHED_MS, Lookout
from collector.read.reader import Reader


def settings(home: Path, *globs: str) -> CollectorSettings:
    section = CollectorSection(inputs=(InputSection(paths=globs, topic="t"),))
    return CollectorSettings(
        section=section, bootstrap_servers="x:1", home=str(home), data_dir=str(home / "data")
    )


def test_files_without_an_input_are_named_until_one_matches(tmp_path: Path) -> None:
    for name in ("text/a.log", "odd/b.log"):
        path = tmp_path / "watched" / name
        path.parent.mkdir(parents=True)
        path.write_text("x\n")
    now_ms = 0
    before, after = settings(tmp_path, "watched/text/**"), settings(tmp_path, "watched/**")
    names = iter(range(99))
    registry = Registry(before.section.inputs, str(tmp_path), lambda: f"g{next(names)}")
    reader = Reader(registry, Handles(8), lambda generation: 1 << 20, lambda section: None)
    lookout = Lookout(reader, before, lambda: now_ms, lambda ones: None, lambda: None)

    def named() -> list[str]:
        asyncio.run(lookout.scan())
        return list(lookout.unmatched)

    assert named() == [f"{tmp_path}/watched/odd/b.log"]

    (tmp_path / "watched" / "c.log").write_text("x\n")
    assert len(named()) == 1, "it is not looked for in every scan"
    now_ms = UNMATCHED_MS
    assert len(named()) == 2

    registry.inputs = after.section.inputs
    lookout.change(after)
    assert named() == []

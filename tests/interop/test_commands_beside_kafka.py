"""Our `kafka-*` commands and Kafka's own on one broker. Their output is equal, or the case states
why not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.harness.kafka_cases import CASES
from tests.harness.kafka_commands import MAINS, NAME, Case
from tests.interop.commands_stage import OURS, THEIRS, Stage, staged

pytestmark = [pytest.mark.live, pytest.mark.slow]

# Lines that Java's logging prints into a tool's output, and a sentence about Java's own options.
_CHATTER = re.compile(r"^(NOTE|WARN|ERROR|INFO|\tat |Caused by| ?\(org\.apache)|^\s*$")
_SAID_BY_JAVA = re.compile(r" Enable debug logging for additional detail\.$")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("beside")) as stage:
        yield stage


def arguments_of(case: Case, stage: Stage, side: str) -> list[str]:
    """Return the arguments of a call. `side` selects the names that only our tool, or only Kafka's,
    uses."""
    words = case.arguments.replace(NAME, side).split()
    return [re.sub(r"@([^,]+)", lambda one: stage.path(one[1]), word) for word in words]


def lines_of(text: str) -> list[str]:
    """Return the output lines of a tool, without those that come from Java's logging."""
    shown = text.replace(THEIRS, NAME).replace(OURS, NAME)
    lines = [_SAID_BY_JAVA.sub("", line) for line in shown.splitlines()]
    return [line for line in lines if not _CHATTER.search(line)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tool} {case.arguments}"[:90])
def test_the_same_is_printed(case: Case, stage: Stage) -> None:
    ours = stage.ours(case.tool, *arguments_of(case, stage, OURS), stdin=case.stdin)
    theirs = stage.theirs(case.tool, *arguments_of(case, stage, THEIRS), stdin=case.stdin)
    told = f"Kafka: {theirs}\nours: {ours}"
    assert (theirs[0], ours[0]) == case.codes, told
    assert "Traceback" not in ours[2], told
    texts = ["\n".join(lines_of(side[1])) for side in (theirs, ours)]
    if case.differs is not None:
        if case.differs.is_sure:
            assert sorted(texts[0].splitlines()) != sorted(texts[1].splitlines()), told
        texts = [case.differs.without(text) for text in texts]
    assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines()), told
    if case.says:
        assert lines_of(theirs[2])[0] == lines_of(ours[2])[0], told


@pytest.mark.parametrize("tool", MAINS)
def test_each_option_of_kafkas_is_known(tool: str, stage: Stage) -> None:
    """Our `--help` must list every option that the `--help` of Kafka's tool lists."""
    lists = [side(tool, "--help") for side in (stage.theirs, stage.ours)]
    theirs, ours = (
        set(re.findall(r"^ {0,4}(--[a-z][\w.-]*)(?=[ \n,])", "".join(one[1:]), re.MULTILINE))
        for one in lists
    )
    assert theirs
    assert theirs <= ours


def test_what_was_produced_is_the_same(stage: Stage) -> None:
    """Both console producers must write the same keys, values, nulls and headers into their
    topics."""
    shown = []
    for side in (THEIRS, OURS):
        options = [f"print.{part}=true" for part in ("partition", "key", "headers")]
        asked = [word for one in options for word in ("--formatter-property", one)]
        code, out, _ = stage.ours(
            "console-consumer",
            *("--topic", f"made{side}", "--from-beginning", "--timeout-ms", "3000"),
            *("--formatter-property", "null.literal=NIL", *asked),
        )
        assert code == 0
        shown.append(sorted(out.splitlines()))
    assert shown[0] == shown[1]

"""The newcomer's tutorial, typed: a log that rotates, JSON in one file, stack traces in the other."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.page_rig import Rig, rig

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

TUTORIAL = "docs/tutorial.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("pages")) as one:
        yield one


def test_the_tutorial_does_what_it_says(made: Rig) -> None:
    began_s = time.monotonic()
    typed = made.type_page(TUTORIAL)
    print(f"{typed} commands of {TUTORIAL} took {time.monotonic() - began_s:.0f} s")

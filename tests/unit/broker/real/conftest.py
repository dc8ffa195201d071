"""Event loops of both kinds, and a CA for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.harness.certificates import TestAuthority, new_test_authority


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return new_test_authority(tmp_path / "tls")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """Yield a runner for each kind of event loop. Fail if the loop had an unhandled exception."""
    faults: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=request.param) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: faults.append(context))
        yield runner
    assert not faults

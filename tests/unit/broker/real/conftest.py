"""A CA of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.certificates import TestAuthority, new_test_authority


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return new_test_authority(tmp_path / "tls")

"""The lock of a data folder: it allows one driver, and the next one after the first has ended."""

import os
from pathlib import Path

import pytest

from stream.lock import StreamRunning, take_lock


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "lock"
    first = take_lock(path)
    with pytest.raises(StreamRunning, match="another stream holds"):
        take_lock(path)
    os.close(first)
    second = take_lock(path)
    assert not os.get_inheritable(second), "the JVM is not to hold it"
    os.close(second)

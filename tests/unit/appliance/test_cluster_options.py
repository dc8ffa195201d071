"""Options of `topic`, `group`, `produce` and `consume` that are checked without a broker."""

from pathlib import Path

import pytest

from appliance.output import Exit
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import run


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("topic", "list", "-r", "("), "( is an invalid regex."),
        (("topic", "offsets", "t", "--time", "99999999999999999999"), "or Unix ms"),
        (("group", "list", "--state", "stable,nope"), "PreparingRebalance, CompletingRebalance,"),
        (("produce", "t", "/etc"), "is a directory"),
        (("produce", "t", "-K", ""), "-K: expected the text between key and value"),
        (("consume", "t", "-n", "-1"), "greater than or equal to 0"),
        (("consume", "t", "-o", "@99999999999999999999"), "or Unix ms"),
    ],
)
def test_what_is_refused(
    asked: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = f"127.0.0.1:{free_port()}"
    code, out, err = run(monkeypatch, tmp_path, *asked, "--bootstrap-server", unused)
    assert (code, out) == (Exit.USAGE, [])
    assert said in "\n".join(err)

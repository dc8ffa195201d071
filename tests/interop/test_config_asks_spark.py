"""`config check` reports its own faults together with those that Spark finds."""

from pathlib import Path

import pytest

from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run

pytestmark = pytest.mark.live

TEXT = """\
stream:
  from:
    access: {topic: logs.access, format: combined}
    broken: {topic: logs.json, format: jsn}
  metrics:
    - {name: misspelt, from: access, key: stats, measure: count}
    - {name: no_truth, from: access, measure: count, where: status + 1}
    - {name: of_broken, from: broken, measure: count, where: status +}
    - {name: no_sql, from: access, measure: sum, value: bytes * * 2}
    - {name: good, from: access, measure: count}
"""


def test_faults_of_both_kinds_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, TEXT)
    code, _, err = run(monkeypatch, tmp_path, "config", "check")
    assert code == Exit.USAGE
    keys = [line.split(": ")[1] for line in err if ": found " in line]
    assert keys == [
        "stream.from.broken.format",
        "stream.metrics[0].key",
        "stream.metrics[1].where",
        "stream.metrics[3].value",
    ]

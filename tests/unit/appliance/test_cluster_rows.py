"""The printed rows of a cluster, and the text in place of an empty table."""

import pytest

from appliance.cli.cluster import OutputFormat, emit

ROW = {"topic": "t", "partition": 0, "leader": None, "isr": [1, 2]}


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (OutputFormat.TABLE, ["TOPIC  PARTITION  LEADER  ISR", "t              0  -       1,2"]),
        (OutputFormat.CSV, ["topic,partition,leader,isr", 't,0,,"[1, 2]"']),
    ],
)
def test_all_that_a_row_has_is_shown(
    output: OutputFormat, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    emit("rows/1", [ROW], output, heads=("topic", "partition"), nothing="no rows")
    assert capsys.readouterr() == ("\n".join([*lines, ""]), "")


def test_of_no_rows_a_person_is_told_and_a_program_gets_heads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heads = ("topic", "partition")
    emit("rows/1", [], OutputFormat.TABLE, heads=heads, nothing="no rows")
    assert capsys.readouterr() == ("", "no rows\n")
    emit("rows/1", [], OutputFormat.CSV, heads=heads, nothing="no rows")
    assert capsys.readouterr() == ("topic,partition\n", "")
    # The error already explains why there are no rows, so the text "no rows" is left out.
    emit("rows/1", [], OutputFormat.TABLE, heads=heads, nothing="no rows", errors=["it is away"])
    assert capsys.readouterr() == ("", "millrace: it is away\n")

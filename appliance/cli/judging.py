"""What only Spark and the databases say of a configuration, asked before anything is changed."""

from appliance.cli.progress import waiting
from appliance.config.load import Loaded
from appliance.mill.settings import Mill


def judge_expressions(mill: Mill, loaded: Loaded) -> tuple[str, ...]:
    """Ask Spark of the expressions and return its notes; answers are remembered.

    Raises ConfigFaults, CheckFailed.
    """
    from appliance.checks.stream_check import check_expressions

    with waiting("Spark checks the metrics"):
        return check_expressions(mill, loaded.document).notes


def judge(mill: Mill, loaded: Loaded) -> tuple[str, ...]:
    """Ask MySQL too whether a metric has changed under its name. Raises as above."""
    from appliance.checks.definitions import check_definitions

    notes = judge_expressions(mill, loaded)
    with waiting("asking MySQL what is counted"):
        check_definitions(mill, loaded.document)
    return notes

"""Ask Spark and MySQL about a configuration before anything is changed."""

from appliance.cli.progress import waiting
from appliance.config.load import LoadedConfig
from appliance.mill.settings import Mill


def judge_expressions(mill: Mill, loaded: LoadedConfig) -> tuple[str, ...]:
    """Have Spark check the expressions and return its notes; answers are cached.

    Raises ConfigFaults and CheckFailed.
    """
    from appliance.checks.stream_check import check_expressions

    with waiting("Spark checks the metrics"):
        return check_expressions(mill, loaded.document).notes


def judge(mill: Mill, loaded: LoadedConfig) -> tuple[str, ...]:
    """Check the configuration with Spark and MySQL, and return notes.

    MySQL is asked if the definition of a metric has changed under its name. Raises ConfigFaults and
    CheckFailed.
    """
    from appliance.checks.definitions import check_definitions

    notes = judge_expressions(mill, loaded)
    with waiting("asking MySQL what is counted"):
        check_definitions(mill, loaded.document)
    return notes

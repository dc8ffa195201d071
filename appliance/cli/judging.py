"""Asks Spark and MySQL about a configuration before anything is changed."""

from appliance.cli.progress import waiting
from appliance.config.faults import ConfigFaults
from appliance.config.load import LoadedConfig
from appliance.config.sound import FaultyConfig
from appliance.mill.home import Home
from appliance.mill.parts import Placement, has_other_parts
from appliance.mill.settings import Mill
from appliance.output import say


def judge_expressions(mill: Mill, loaded: LoadedConfig) -> tuple[str, ...]:
    """Have Spark check the expressions and return its notes; answers are cached.

    Raises ConfigFaults and CheckFailed.
    """
    from appliance.checks.stream_check import check_expressions

    if not has_other_parts(mill.config, mill.placement):
        # The stream runs on another host, which checks its metrics.
        return ()
    with waiting("Spark checks the metrics"):
        return check_expressions(mill, loaded.document).notes


def judge_rest(faulty: FaultyConfig, home: Home, placement: Placement) -> ConfigFaults:
    """Return the faults of a file, together with those that Spark finds in its inputs and metrics
    without faults.

    If Spark cannot be asked, return only the known faults, and print the reason.
    """
    from appliance.checks.stream_check import CheckFailed, check_rest

    if faulty.rest is None:
        return faulty
    try:
        with waiting("Spark checks the other metrics"):
            return check_rest(Mill(home, faulty.rest.config, placement), faulty)
    except CheckFailed as error:
        say(f"{home.config_file}: Spark has not checked the other metrics: {error}")
        return faulty


def judge(mill: Mill, loaded: LoadedConfig) -> tuple[str, ...]:
    """Check the configuration with Spark and MySQL, and return notes.

    MySQL is asked if the definition of a metric has changed under its name. Raises ConfigFaults and
    CheckFailed.
    """
    from appliance.checks.definitions import check_definitions

    notes = judge_expressions(mill, loaded)
    if not has_other_parts(mill.config, mill.placement):
        return notes
    with waiting("asking MySQL for the definitions of the stored metrics"):
        check_definitions(mill, loaded.document)
    return notes

"""Report which windows a new `keep` in the configuration file would delete from MySQL, and when.

A cell is the count of one key in one window. If MySQL answers, it says which `keep` is in force and
how many cells are older. Otherwise the file is compared with the configuration with which the mill
was last started.
"""

import time
from collections.abc import Iterable

import pymysql

from appliance.config.faults import ConfigFaults
from appliance.config.load import load
from appliance.config.model import MillConfig
from appliance.mill.init import InitError
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER
from sinks.config import MySqlSettings
from sinks.keeping import foreseen_words, shortened, unasked_words, words
from sinks.mysql.purging import foresee, read_terms
from sinks.read import connect_to_read
from sinks.rows import MetricDefinition
from stream.config.metrics import resolve_metrics

TIMEOUT_S = 2.0
PURGE_REMEDY = "`./millrace stream purge` deletes them at once"


def deletions(mill: Mill, *, asks: bool = True) -> list[str]:
    """Return a sentence for each metric and window size that would lose windows.

    With `asks`, query MySQL.
    """
    if mill.config.sinks.mysql is None:
        return []
    definitions = definitions_of(mill.config)
    try:
        found = _foreseen(mill, definitions) if asks else _compared(mill, definitions)
    except (InitError, pymysql.err.Error, OSError):
        found = _compared(mill, definitions)
    return [f"{text}; {PURGE_REMEDY}" for text in found]


def definitions_of(config: MillConfig) -> list[MetricDefinition]:
    """Return each configured metric's definition, in the form that the sinks use."""
    return [metric.definition for metric in resolve_metrics(config.stream)]


def _foreseen(mill: Mill, definitions: Iterable[MetricDefinition]) -> list[str]:
    settings = MySqlSettings.model_validate(sinks_settings(mill, READER, "monitor")["mysql"])
    now_s = int(time.time())
    with connect_to_read(settings, TIMEOUT_S) as connection, connection.cursor() as cursor:
        known = read_terms(cursor)
        terms = foresee(cursor, definitions, known, now_s)
    return [
        words(term)
        if place in known and known[place].from_s == term.from_s
        else foreseen_words(term)
        for place, term in terms.items()
        if term.from_s > now_s
    ]


def _compared(mill: Mill, definitions: Iterable[MetricDefinition]) -> list[str]:
    try:
        started = load(mill.home.started_config, mill.home.folder).config
    except ConfigFaults:
        # No mill has been started in this folder, or an older version wrote the file, so there is
        # no earlier configuration to compare with.
        return []
    return [unasked_words(*change) for change in shortened(definitions_of(started), definitions)]

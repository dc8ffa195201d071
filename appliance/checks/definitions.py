"""Ask MySQL whether a metric's definition differs from the definition stored under the same name.

The stream refuses such a metric when it starts. If MySQL answers, this check reports the difference
before the stream starts.
"""

import contextlib

import pymysql

from appliance.config.document import Document
from appliance.config.faults import ConfigFaults
from appliance.mill.init import InitError
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER
from sinks.config import MySqlSettings
from sinks.mysql.metric_changes import FORGOTTEN
from sinks.read import connect_to_read
from sinks.rows import definitions_differing
from stream.config.metrics import resolve_metrics

TIMEOUT_S = 2.0


def check_definitions(mill: Mill, document: Document) -> bool:
    """Compare all definitions. Return whether the database answered.

    Raises ConfigFaults with each metric whose stored definition differs. A mill without MySQL has
    its definitions in Redis, where the read-only user cannot read them. For such a mill only the
    stream reports a difference.
    """
    if mill.config.sinks.mysql is None or not mill.config.stream.metrics:
        return False
    stored = _stored(mill)
    if stored is None:
        return False
    definitions = [metric.definition for metric in resolve_metrics(mill.config.stream)]
    places = {definition.name: index for index, definition in enumerate(definitions)}
    for name in definitions_differing(definitions, stored):
        document.add(
            ("stream", "metrics", places[name]),
            f"the metric {name} with another meaning than the stored counts of this name",
            f"a new name; or take the metric out of the file, remove its counts with "
            f"`./millrace stream forget {name}`, and put it back",
        )
    if document.faults:
        raise ConfigFaults(document.faults)
    return True


def _stored(mill: Mill) -> dict[str, bytes] | None:
    """Return the stored definition hashes by metric; None if the mill has no MySQL or MySQL does
    not answer."""
    try:
        settings = MySqlSettings.model_validate(sinks_settings(mill, READER, "monitor")["mysql"])
        connection = connect_to_read(settings, TIMEOUT_S)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT name, definition_hash FROM metrics")
            rows = {str(name): bytes(value) for name, value in cursor.fetchall()}
            return {name: value for name, value in rows.items() if value != FORGOTTEN}
    except (InitError, pymysql.MySQLError, OSError):
        return None

"""Runs MySQL transactions for stream commands, as the user that may write counts."""

from collections.abc import Callable
from typing import Any, TypeVar

import pymysql

from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import SINK_USER
from appliance.output import CommandError, Exit

Result = TypeVar("Result")


def in_mysql(mill: Mill, what: str, work: Callable[[Any], Result]) -> Result:
    """Run one transaction. Raises CommandError, which names `what`, if the mill has no MySQL."""
    from sinks.config import SinksSettings
    from sinks.mysql import link as mysql_link

    settings = SinksSettings.model_validate(sinks_settings(mill, SINK_USER, "stream")).mysql
    if settings is None:
        raise CommandError(f"{what} needs MySQL, but the configuration has sinks.mysql: null")
    try:
        connection = mysql_link.connect(settings)
        try:
            connection.begin()
            found = work(connection.cursor())
            connection.commit()
            return found
        finally:
            connection.close()
    except pymysql.err.Error as error:
        raise CommandError(f"{what} failed in MySQL: {error}", Exit.UNREACHABLE) from error

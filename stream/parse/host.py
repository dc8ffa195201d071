"""The collector of a line, as SQL: its name is in a header of the record.

This module is pure and needs no JVM.
"""

from protocol.collector_report import HOST_HEADER


def host_sql(headers: str) -> str:
    """Return SQL for the collector's name in the headers of a record; NULL without such a header.

    If a record has several such headers the last one counts, as in Kafka's own clients.
    """
    own = f"filter({headers}, header -> header.key = '{HOST_HEADER}')"
    return f"try_element_at({own}, -1).value"


def headers_sql(host: str) -> str:
    """Return SQL for the headers of a record of the collector `host`; NULL if that is NULL."""
    header = f"named_struct('key', '{HOST_HEADER}', 'value', {host})"
    return f"IF({host} IS NULL, NULL, array({header}))"

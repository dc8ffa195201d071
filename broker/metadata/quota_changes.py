"""The changes of the client quotas between two images.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.metadata.records import ClientQuotaRecord, ImpossibleRecord, QuotaEntityData
from protocol.security.quota import QuotaEntity, entity_of

QuotaValues = Mapping[QuotaEntity, Mapping[str, float]]
"""The quotas by entity and key. Only entities with quotas are included."""


class QuotaChanges:
    """The quotas of an image, and the records that were replayed on them."""

    def __init__(self, base: QuotaValues) -> None:
        self._base = base
        self._values: dict[QuotaEntity, Mapping[str, float]] | None = None

    def values(self) -> QuotaValues:
        """Return the quotas after all records; the same object if there were none."""
        return self._base if self._values is None else self._values

    def replay(self, record: ClientQuotaRecord) -> None:
        """Replay a record. Raises ImpossibleRecord without any change."""
        entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
        before = self.values().get(entity, {})
        if record.remove and record.key not in before:
            raise ImpossibleRecord(f"there is no quota {record.key} of {entity} to remove")
        after = {key: value for key, value in before.items() if key != record.key}
        if not record.remove:
            after[record.key] = record.value
        if self._values is None:
            self._values = dict(self._base)
        if after:
            self._values[entity] = after
        else:
            del self._values[entity]


def quota_record(
    entity: QuotaEntity, key: str, value: float, *, remove: bool = False
) -> ClientQuotaRecord:
    """Return the record that sets or removes a quota."""
    parts = [QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def quota_records(values: QuotaValues) -> Iterator[ClientQuotaRecord]:
    """Yield the records of all quotas."""
    for entity, quotas in values.items():
        for key, value in quotas.items():
            yield quota_record(entity, key, value)

"""Decides AlterClientQuotas (KIP-546): sets and removes quotas of users, client ids and addresses.

This module is pure. The errors and their texts are Kafka's, with two differences. NaN and infinity
are refused. An entity or a key that a request names twice is refused too, because the result would
depend on the order of the changes. Each entity succeeds or fails alone.
"""

from __future__ import annotations

import math
from collections import Counter

from broker.controller.outcome import ControllerDecision
from broker.metadata.image import MetadataImage
from broker.metadata.quota_changes import quota_record
from broker.metadata.records import ClientQuotaRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    AlteredQuotaResult,
    QuotaEntityPart,
    QuotaOperation,
)
from protocol.security.address import is_address, normal_host
from protocol.security.quota import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_RATE,
    IP,
    USER,
    QuotaEntity,
    entity_of,
)

ENTITIES_MAX = 10_000
"""The most entities with quotas in a cluster; each takes a few hundred bytes in every broker."""

NAME_LENGTH_MAX = 1_024
"""The longest name of a user or client id that can have quotas."""

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
FRACTION_MAX = 1e-6
"""Kafka rounds a value to a whole number if the difference is at most this large."""


def alter_quotas(
    request: AlterClientQuotasRequest, image: MetadataImage
) -> ControllerDecision[AlterClientQuotasResponse]:
    """Decide AlterClientQuotas, each entity of the request separately. A value that does not change
    gets no record."""
    counts = Counter(_key_of(entry) for entry in request.entries)
    known = set(image.quotas)
    records: list[ClientQuotaRecord] = []
    results = []
    for entry in request.entries:
        result = AlteredQuotaResult(
            error_code=ErrorCode.NONE,
            entity=[
                QuotaEntityPart(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
        )
        results.append(result)
        try:
            if counts[_key_of(entry)] > 1:
                raise _invalid(
                    "the request names this entity twice: name it once, with all its quotas"
                )
            changes = _records_of(entry, image)
            entity = _key_of(entry)
            is_new = entity not in known and any(not one.remove for one in changes)
            if is_new and len(known) >= ENTITIES_MAX:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the cluster already has quotas for {ENTITIES_MAX} entities, which is the"
                    " limit: remove some",
                )
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            records.extend(changes)
            if is_new:
                known.add(entity)
    if request.validate_only:
        records = []
    return ControllerDecision(records, AlterClientQuotasResponse(entries=results))


def _key_of(entry: AlteredQuota) -> QuotaEntity:
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _records_of(entry: AlteredQuota, image: MetadataImage) -> list[ClientQuotaRecord]:
    """Return the records that change the quotas of one entity. Raises ApiError."""
    _check_entity(entry.entity)
    entity = _key_of(entry)
    present = image.quotas.get(entity, {})
    twice = [key for key, count in Counter(op.key for op in entry.ops).items() if count > 1]
    if twice:
        raise _invalid(f"the request names {twice[0]} twice for one entity")
    records = []
    for op in entry.ops:
        if op.remove:
            if op.key in present:
                records.append(quota_record(entity, op.key, 0.0, remove=True))
            continue
        _check_value(op, of_address=entity[0][0] == IP)
        if present.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records


def _check_entity(entity: list[QuotaEntityPart]) -> None:
    """Raise ApiError if an entity can have no quotas."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    kinds = [part.entity_type for part in entity]
    for part in entity:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if kinds.count(part.entity_type) > 1:
            raise _invalid(f"Duplicate client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _invalid(f"Empty {part.entity_type} not supported")
        if part.entity_name is not None and len(part.entity_name) > NAME_LENGTH_MAX:
            raise _invalid(f"the name of the {part.entity_type} has more than {NAME_LENGTH_MAX}"
                           " characters")  # fmt: skip
    if IP not in kinds:
        return
    if len(kinds) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    (name,) = [part.entity_name for part in entity]
    if name is None:
        return
    # Kafka also takes host names, and looks them up once.
    if not is_address(name):
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    if normal_host(name) != name:
        raise _invalid(f"found the address {name}, expected it as {normal_host(name)}")


def _check_value(op: QuotaOperation, *, of_address: bool) -> None:
    """Raise ApiError if a quota cannot have this value."""
    if op.key not in ((CONNECTION_RATE,) if of_address else CLIENT_KEYS):
        raise _invalid(f"Invalid configuration key {op.key}")
    if not math.isfinite(op.value):
        raise _invalid(f"found {op.value} for {op.key}, expected a number")
    if op.value <= 0:
        raise _invalid(f"Quota {op.key} must be greater than 0")
    if op.key == CONNECTION_RATE and op.value > INT_MAX:
        raise _invalid(f"Proposed value for {op.key} is too large for an INT.")
    if not of_address and not CLIENT_KEYS[op.key]:
        return
    if op.value > LONG_MAX:
        raise _invalid(f"Proposed value for {op.key} is too large for a LONG.")
    if abs(op.value - round(op.value)) > FRACTION_MAX:
        raise _invalid(f"{op.key} cannot be a fractional value.")


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)

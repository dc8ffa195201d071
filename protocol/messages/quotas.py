"""Client quotas: describe them and change them (KIP-546).

This module has only data classes. The names of entity types and keys are those of
`protocol/security/quota`. The name None stands for the default of an entity type.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)


class QuotaFilterComponent(Struct):
    """A condition on the entities: `match_type` 0 matches one name, 1 the default, 2 all."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=0)


class DescribeClientQuotasRequest(
    Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    """Ask for the quotas of the entities that match all components.

    With `strict`, an entity must not have other types than those of the components.
    """

    components: list[QuotaFilterComponent] = array(QuotaFilterComponent)
    strict: bool = boolean()


class QuotaEntityPart(Struct):
    """A part of an entity: its type and its name."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=0)


class QuotaValue(Struct):
    """The value of one quota."""

    key: str = string()
    value: float = float64()


class DescribedQuota(Struct):
    """The quotas of one entity."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    values: list[QuotaValue] = array(QuotaValue)


class DescribeClientQuotasResponse(
    Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    """The quotas of the matching entities; `entries` is None after an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    entries: list[DescribedQuota] | None = array(DescribedQuota, nullable=0)


class QuotaOperation(Struct):
    """A quota that will be set, or removed."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlteredQuota(Struct):
    """The changes for one entity."""

    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    ops: list[QuotaOperation] = array(QuotaOperation)


class AlterClientQuotasRequest(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    """Change quotas. Each entity succeeds or fails alone."""

    entries: list[AlteredQuota] = array(AlteredQuota)
    validate_only: bool = boolean()


class AlteredQuotaResult(Struct):
    """The result for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)


class AlterClientQuotasResponse(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    """The results of an AlterClientQuotas request."""

    throttle_time_ms: int = int32()
    entries: list[AlteredQuotaResult] = array(AlteredQuotaResult)

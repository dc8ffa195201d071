"""Lists the client quotas of a cluster, and changes them (KIP-546)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntityPart,
    QuotaFilterComponent,
    QuotaOperation,
)
from protocol.security.quota import ANY_NAME, DEFAULT, EXACT, QuotaEntity, entity_of

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


def exactly(kind: str, name: str | None) -> QuotaFilterComponent:
    """Return the filter for one name of an entity type; None is the default."""
    match_type = DEFAULT if name is None else EXACT
    return QuotaFilterComponent(entity_type=kind, match_type=match_type, match=name)


def any_name(kind: str) -> QuotaFilterComponent:
    """Return the filter for all names of an entity type, and its default."""
    return QuotaFilterComponent(entity_type=kind, match_type=ANY_NAME, match=None)


async def describe_quotas(
    cluster: "Cluster",
    components: Iterable[QuotaFilterComponent] = (),
    *,
    is_strict: bool = False,
    timeout_ms: int | None = None,
) -> dict[QuotaEntity, Mapping[str, float]]:
    """Return the quotas of the entities that match all components. If `is_strict`, entities with
    further types do not match. Raises ApiError."""
    request = DescribeClientQuotasRequest(components=list(components), strict=is_strict)

    async def attempt(left_ms: int) -> dict[QuotaEntity, Mapping[str, float]]:
        response: DescribeClientQuotasResponse = await cluster.request(
            None, request, timeout_ms=left_ms
        )
        raise_for(response.error_code, response.error_message)
        return {
            entity_of((part.entity_type, part.entity_name) for part in one.entity): {
                value.key: value.value for value in one.values
            }
            for one in response.entries or ()
        }

    return await cluster.repeat(attempt, timeout_ms)


async def alter_quotas(
    cluster: "Cluster",
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Set the quotas of one entity; None removes a quota. Raises ApiError."""
    entry = AlteredQuota(
        entity=[QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            QuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry])

    async def attempt(left_ms: int) -> None:
        response: AlterClientQuotasResponse = await cluster.request(
            None, request, timeout_ms=left_ms
        )
        for result in response.entries:
            raise_for(result.error_code, result.error_message)

    await cluster.repeat(attempt, timeout_ms)

"""Handles requests about client quotas: describe them, and pass changes on to the controller."""

from __future__ import annotations

from collections.abc import Mapping

from broker.cluster.metadata import Metadata
from broker.handlers.rights import order_code
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    QuotaEntityPart,
    QuotaFilterComponent,
    QuotaValue,
)
from protocol.security.acl import AclOperation
from protocol.security.quota import ANY_NAME, CLIENT_ID, DEFAULT, EXACT, IP, USER, QuotaEntity


class QuotaHandlers:
    """Handles DescribeClientQuotas and AlterClientQuotas."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe(
        self, call: Call, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        """Return the quotas of the entities that match all components of the request."""
        try:
            call.need_of_cluster(AclOperation.DESCRIBE_CONFIGS)
            wanted = _conditions(request.components)
        except ApiError as error:
            return DescribeClientQuotasResponse(
                error_code=error.code, error_message=error.message, entries=None
            )
        entries = [
            DescribedQuota(
                entity=[
                    QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[QuotaValue(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in self._metadata.image.quotas.items()
            if _matches(entity, wanted, is_strict=request.strict)
        ]
        return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, entries=entries)

    def alter(self, call: Call, request: AlterClientQuotasRequest) -> None:
        """Pass the changes to the controller. The answer is sent when they are committed and in
        force here."""

        def refused(error: ApiError) -> None:
            results = [
                AlteredQuotaResult(
                    error_code=order_code(error), error_message=error.message, entity=entry.entity
                )
                for entry in request.entries
            ]
            call.answer(AlterClientQuotasResponse(entries=results))

        self._metadata.submit(request, call.answer, refused, *call.asker)


def _conditions(
    components: list[QuotaFilterComponent],
) -> Mapping[str, tuple[int, str | None]]:
    """Return the match type and the name for each entity type. Raises ApiError."""
    found: dict[str, tuple[int, str | None]] = {}
    for one in components:
        kind, name = one.entity_type, one.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in found:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Entity type {kind} is not supported.")
        if one.match_type not in (EXACT, DEFAULT, ANY_NAME):
            raise _invalid(f"Unknown match type {one.match_type}")
        if one.match_type == EXACT and name is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if one.match_type != EXACT and name is not None:
            which = "DEFAULT" if one.match_type == DEFAULT else "SPECIFIED"
            raise _invalid(
                f"Request specified MATCH_TYPE_{which}, but also specified a match string."
            )
        found[kind] = (one.match_type, name)
    if IP in found and len(found) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used"
            " with user or clientId filter component."
        )
    return found


def _matches(
    entity: QuotaEntity, wanted: Mapping[str, tuple[int, str | None]], *, is_strict: bool
) -> bool:
    names = dict(entity)
    if is_strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (match_type == ANY_NAME or names[kind] == name)
        for kind, (match_type, name) in wanted.items()
    )


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)

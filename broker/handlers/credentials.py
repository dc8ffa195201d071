"""Handles requests about the SCRAM credentials of users: describe them, and pass changes on."""

from __future__ import annotations

from collections import Counter

from broker.cluster.metadata import Metadata
from broker.handlers.rights import order_code
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.security.acl import AclOperation
from protocol.security.scram import Mechanism


class CredentialHandlers:
    """Handles DescribeUserScramCredentials and AlterUserScramCredentials."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe(
        self, call: Call, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Return the mechanisms and iterations of users. Their keys are never shown."""
        call.need_of_cluster(AclOperation.DESCRIBE)
        found: dict[str, list[tuple[Mechanism, int]]] = {}
        for (name, mechanism), one in self._metadata.image.credentials.items():
            found.setdefault(name, []).append((mechanism, one.iterations))
        counts = Counter(user.name for user in request.users or ())
        results = []
        for name in counts or sorted(found):
            result = DescribeUserScramCredentialsResult(user=name)
            if counts[name] > 1:
                result.error_code = ErrorCode.DUPLICATE_RESOURCE
                result.error_message = f"user '{name}' is named twice in the request"
            elif name not in found:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"user '{name}' has no SCRAM credentials"
            else:
                result.credential_infos = [
                    CredentialInfo(mechanism=mechanism, iterations=iterations)
                    for mechanism, iterations in sorted(found[name])
                ]
            results.append(result)
        return DescribeUserScramCredentialsResponse(results=results)

    def alter(self, call: Call, request: AlterUserScramCredentialsRequest) -> None:
        """Pass the changes to the controller. The answer is sent when they are committed."""

        def refused(error: ApiError) -> None:
            names = dict.fromkeys(one.name for one in request.deletions)
            names.update(dict.fromkeys(one.name for one in request.upsertions))
            call.answer(
                AlterUserScramCredentialsResponse(
                    results=[
                        AlterUserScramCredentialsResult(
                            user=name,
                            error_code=order_code(error),
                            error_message=error.message,
                        )
                        for name in names
                    ]
                )
            )

        self._metadata.submit(request, call.answer, refused, *call.asker)

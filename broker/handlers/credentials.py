"""Handles requests about the SCRAM credentials of users: describe them, and pass changes on."""

from __future__ import annotations

import logging
from collections import Counter
from operator import itemgetter

from broker.cluster.metadata import Metadata
from broker.handlers.rights import order_code
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
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

logger = logging.getLogger(__name__)


class CredentialHandlers:
    """Handles DescribeUserScramCredentials and AlterUserScramCredentials."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe(
        self, call: Call, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Return the mechanisms and iterations of users. Their keys are never shown."""
        call.need_of_cluster(AclOperation.DESCRIBE)
        found: dict[str, list[CredentialInfo]] = {}
        for (name, mechanism), one in sorted(
            self._metadata.image.credentials.items(), key=itemgetter(0)
        ):
            info = CredentialInfo(mechanism=mechanism, iterations=one.iterations)
            info.enrolment_ends_ms = one.expires_at_ms if one.is_enrolment else 0
            found.setdefault(name, []).append(info)
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
                result.credential_infos = found[name]
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

        login = call.session.login
        used = None if login is None else login.credential
        request.login_key = b"" if used is None else used.stored_key
        user, peer = call.session.rights.user, call.session.peer

        def altered(response: AlterUserScramCredentialsResponse) -> None:
            has_joined = used is not None and used.is_enrolment and response.results
            if has_joined and not response.results[0].error_code:
                logger.info("a host has joined", extra=fields(user=user, peer=peer))
            call.answer(response)

        self._metadata.submit(request, altered, refused, *call.asker)

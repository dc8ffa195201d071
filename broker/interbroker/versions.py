"""The answer to other brokers' ApiVersions: the versions that this broker speaks to brokers.

They depend on the release alone. So a broker that is still joining names all of them, also those of
requests that it cannot serve yet.
"""

from __future__ import annotations

from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from broker.sessions.versions import Versions, answer_with
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse


def version_handlers(versions: Versions) -> dict[ApiKey, Handler]:
    """Return the handler for the BROKER listener."""
    answer = answer_with(versions)

    def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return answer

    return {ApiKey.API_VERSIONS: api_versions}

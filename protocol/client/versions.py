"""Chooses the version of each request on a connection: the highest that both sides support.

This module is pure.
"""

from collections.abc import Mapping

from protocol.client.errors import UnsupportedVersion
from protocol.messages.api import ApiKey, client_versions
from protocol.messages.cluster import ApiVersionsResponse

FIRST_API_VERSIONS_VERSION = 3
"""The first version of ApiVersions to try. Every broker since Kafka 2.4 supports it.

Older brokers answer UNSUPPORTED_VERSION in version 0.
"""

CLIENT_SOFTWARE_NAME = "millrace"


class Versions:
    """The versions that a broker offers, and the version to use for each request."""

    def __init__(self, peer: str, offered: Mapping[int, range]) -> None:
        self.peer = peer
        self.offered = offered
        self._chosen: dict[int, int] = {}

    @classmethod
    def of_response(cls, peer: str, response: ApiVersionsResponse) -> "Versions":
        """Return the versions in a broker's answer."""
        return cls(
            peer,
            {key.api_key: range(key.min_version, key.max_version + 1) for key in response.api_keys},
        )

    def choose(self, api_key: int) -> int:
        """Return the version in which to send a request.

        Raises UnsupportedVersion with both ranges.
        """
        version = self._chosen.get(api_key)
        if version is None:
            version = self._chosen[api_key] = self._choose(ApiKey(api_key))
        return version

    def _choose(self, key: ApiKey) -> int:
        ours = client_versions(key)
        theirs = self.offered.get(key)
        if not theirs:
            raise UnsupportedVersion(f"{self.peer} does not offer {key.name}")
        version = min(ours[-1], theirs[-1])
        if version < max(ours[0], theirs[0]):
            raise UnsupportedVersion(
                f"{self.peer} offers {key.name} {theirs[0]} to {theirs[-1]}, "
                f"this client speaks {ours[0]} to {ours[-1]}"
            )
        return version

"""The versions of requests between two brokers: each request goes in the highest version that both
speak (KIP-511, KIP-584).

This module is pure. The ranges of this release are in `protocol/messages/api`. A broker sends
ApiVersions to each other broker and gets its ranges. Until then it uses the first version of its
own range. All brokers with which this release can form a cluster understand that version. So no
request waits for the ranges, and a broker of 1.0.0-rc1, which does not answer ApiVersions, needs no
rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from protocol.messages.api import BETWEEN_BROKERS, FORWARDED
from protocol.messages.cluster import ApiVersion, ApiVersionsResponse

Versions = Mapping[int, range]
"""The range of each request, by API key."""

OWN_VERSIONS: Versions = MappingProxyType(
    {int(key): one for table in (BETWEEN_BROKERS, FORWARDED) for key, one in table.items()}
)
"""The ranges of this release: of requests between brokers, and of requests in an Envelope."""

NO_VERSIONS = range(0)


def choose(own: range, other: range | None) -> int | None:
    """Return the version for a request; None if the ranges have none in common.

    `other` is the range of the receiver; None while it is not known.
    """
    if other is None:
        return own[0]
    common = range(max(own.start, other.start), min(own.stop, other.stop))
    return common[-1] if common else None


def answer_with(versions: Versions) -> ApiVersionsResponse:
    """Return the answer to ApiVersions with these ranges."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=versions[key][0], max_version=versions[key][-1])
            for key in sorted(versions)
        ]
    )


def versions_in(answer: ApiVersionsResponse) -> Versions:
    """Return the ranges in an answer to ApiVersions."""
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys}


def shown(versions: range) -> str:
    """Return a range as text for logs."""
    return f"{versions[0]} to {versions[-1]}" if versions else "none"

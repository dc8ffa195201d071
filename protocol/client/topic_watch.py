"""Watches the topics of a subscription for new, growing and deleted topics.

It reports changes to the group's core. The member joins after the first answer, because a pattern
has no topics before the first answer.
"""

import asyncio
import re

from protocol.client.cluster import Cluster
from protocol.client.consumer_settings import ConsumerSettings
from protocol.client.errors import ClientError, is_transient
from protocol.client.group_core import GroupCore
from protocol.client.membership import GroupMemberDriver, partition_counts
from protocol.client.metadata import ClusterMetadata
from protocol.errors import ApiError

RETRY_MS = 1_000


class TopicWatch:
    """Checks the topics of one subscription at once and regularly, until it is cancelled.

    `topics` are the subscribed topics, including those that match the pattern.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        core: GroupCore,
        member: GroupMemberDriver,
        topics: frozenset[str],
        pattern: str | None,
    ) -> None:
        if bool(topics) == bool(pattern):
            raise ValueError(
                "expected either topics or a pattern, because a subscription has one of them"
            )
        self.topics = topics
        self._pattern = None if pattern is None else re.compile(pattern)
        self._cluster = cluster
        self._settings = settings
        self._core = core
        self._member = member

    async def run(self) -> None:
        """Check the topics until the task is cancelled. Raises permanent errors."""
        if self._pattern is None:
            self._core.subscribe(self.topics)
        while True:
            wait_ms = self._settings.topics_check_ms
            try:
                if self._pattern is not None:
                    self.topics = self._matches(await self._cluster.metadata(refresh=True))
                    self._core.subscribe(self.topics)
                counts = await partition_counts(self._cluster, self._core.watched_topics)
                self._core.topics_seen(counts)
            except (ClientError, ApiError) as error:
                if not is_transient(error):
                    raise
                wait_ms = RETRY_MS
            else:
                self._member.start()
                self._member.wake()
            await asyncio.sleep(wait_ms / 1000)

    def _matches(self, current: ClusterMetadata) -> frozenset[str]:
        assert self._pattern is not None
        return frozenset(
            name
            for name, topic in current.topics.items()
            if self._pattern.fullmatch(name)
            and not (topic.is_internal and self._settings.exclude_internal_topics)
        )

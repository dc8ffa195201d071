"""Commits Spark's progress as a consumer group, so that every lag monitor shows it.

Spark itself commits nothing to Kafka. A listener stores the end offsets of each finished batch in
place of older ones, and a thread commits them. The stream never reads these commits. So a failed
commit is only logged, because the next commit replaces it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.group import OffsetAndMetadata, commit_offsets
from protocol.client.security import cluster_of
from protocol.errors import ApiError
from protocol.log import fields
from protocol.security.cluster_security import ClusterEntry
from protocol.types import TopicPartition
from stream.config.settings import CONSUMER_GROUP
from stream.source.checkpoint import Offsets
from stream.state import StreamState
from stream.threads import ThreadKeeper

# The least time between two commits. The last offsets of a burst are always committed. The time is
# short because the collector reads these commits to pace old lines (`collector/send/lag_windows`).
COMMIT_INTERVAL_S = 0.1
COMMIT_TIMEOUT_MS = 5_000

logger = logging.getLogger(__name__)


class OffsetCommitter:
    """Commits the latest offsets from its own thread."""

    def __init__(self, entry: ClusterEntry, client_id: str) -> None:
        self._entry = entry
        self._client_id = client_id
        self._slot: tuple[Offsets, str] | None = None
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self, keeper: ThreadKeeper) -> None:
        """Start the thread that commits offered offsets."""
        self._thread = keeper.keep("committer", self._run)

    def offer(self, offsets: Offsets, metadata: str) -> None:
        """Commit these offsets soon, unless newer ones are offered first."""
        if offsets:
            with self._lock:
                self._slot = (offsets, metadata)
            self._filled.set()

    def close(self, timeout_s: float) -> None:
        """Commit the offsets offered last, then end the thread; wait for up to `timeout_s`."""
        self._is_closed = True
        self._filled.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.run(self._commit_for_ever())

    async def _commit_for_ever(self) -> None:
        cluster = cluster_of(self._entry, client_id=self._client_id)
        try:
            while True:
                await asyncio.to_thread(self._filled.wait)
                self._filled.clear()
                with self._lock:
                    slot, self._slot = self._slot, None
                if slot is not None:
                    await self._commit(cluster, *slot)
                if self._is_closed and self._slot is None:
                    return
                if not self._is_closed:
                    await asyncio.sleep(COMMIT_INTERVAL_S)
        finally:
            await cluster.close()

    async def _commit(self, cluster: Cluster, offsets: Offsets, metadata: str) -> None:
        wanted = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
            for (topic, partition), offset in offsets.items()
        }
        try:
            await commit_offsets(cluster, CONSUMER_GROUP, wanted, timeout_ms=COMMIT_TIMEOUT_MS)
        except (ApiError, ClientError, OSError) as error:
            logger.warning(
                "could not commit the progress; the next batch tries again",
                extra=fields(group=CONSUMER_GROUP, reason=error),
            )


class ProgressListener:
    """Listens to Spark's streaming events.

    It reads the raw Java events, because PySpark's own classes make many calls to the JVM for each.
    """

    def __init__(self, committer: OffsetCommitter, state: StreamState) -> None:
        self._committer = committer
        self._state = state
        self._last: tuple[Offsets, str] | None = None

    def register(self, session: SparkSession) -> None:
        """Register this listener with the session."""
        from pyspark.java_gateway import ensure_callback_server_started

        gateway = SparkContext._gateway
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # untyped in PySpark
        wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        session.streams._jsqm.addListener(wrapper(self))

    def begins_at(self, offsets: Offsets, metadata: str) -> None:
        """Commit these offsets until the first batch of the query ends."""
        self._last = (offsets, metadata)
        self._committer.offer(offsets, metadata)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Offer the offsets of a batch that Spark has committed."""
        progress = json.loads(event.progress().json())
        self._state.progressed(progress)
        self._last = (end_offsets(progress), f"{progress['id']} {progress['batchId']}")
        self._committer.offer(*self._last)

    def onQueryIdle(self, event: Any) -> None:
        """Commit the last offsets again, so that the broker does not expire an idle group."""
        self._state.idle()
        if self._last is not None:
            self._committer.offer(*self._last)

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing, because the job checks the query itself."""

    class Java:
        """The Java interface that this object implements for Py4J."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def end_offsets(progress: Mapping[str, Any]) -> Offsets:
    """Return the end offsets of the batch in a progress report; empty if the report has none."""
    found: Offsets = {}
    for source in progress.get("sources", ()):
        ends = source.get("endOffset")
        ends = json.loads(ends) if isinstance(ends, str) else ends
        for topic, partitions in (ends or {}).items():
            for partition, offset in partitions.items():
                found[topic, int(partition)] = int(offset)
    return found

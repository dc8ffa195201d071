"""The settings of the broker itself, with default and reason, in one table.

This module is pure. Settings with `is_dynamic` can be changed while the broker runs, for one broker
or for all, so code must read them on every use. Some defaults differ from Kafka's, because they are
for three brokers on one machine. By default the internal topics are kept small, so that a
coordinator loads quickly.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.limit_keys import LimitKeys
from broker.settings import INT_MAX, LONG_MAX, ConfigType, setting

DEFAULT_FACTOR = "default.replication.factor"
OFFSETS_FACTOR = "offsets.topic.replication.factor"
TRANSACTIONS_FACTOR = "transaction.state.log.replication.factor"
TRANSACTIONS_MIN_ISR = "transaction.state.log.min.isr"
FACTORS = (
    DEFAULT_FACTOR,
    OFFSETS_FACTOR,
    TRANSACTIONS_FACTOR,
)
"""The keys that set the number of replicas of new topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKeys(LimitKeys):
    """The settings of the broker. `LogConfig` has the settings of topics."""

    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", ConfigType.BOOLEAN, True, is_dynamic=True,
        why="a metadata request that allows it creates the missing topics that it names",
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", ConfigType.BOOLEAN, True, is_dynamic=True,
        why="a minute after a broker came back, it leads again where it is the first replica",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", ConfigType.LONG, 600_000, "ms", is_dynamic=True, low=1,
        why="a silent connection is closed, because its peer may be gone",
    )  # fmt: skip
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms", ConfigType.LONG, 3_600_000, "ms", is_dynamic=True, low=0,
        why="a client must log in again within this time, or its connection is closed; 0 for never",
    )  # fmt: skip
    cordoned_log_dirs: str = setting(
        "cordoned.log.dirs", ConfigType.LIST, "", is_dynamic=True,
        why="a broker with `*` gets no new replicas (KIP-1066); the replicas that it has stay",
        pattern=r"\*?", form="* (all folders of the broker; it has one), or nothing",
    )  # fmt: skip
    default_replication_factor: int = setting(
        "default.replication.factor", ConfigType.INT, 1, "replicas", low=1,
        is_dynamic=True,
        why="replicas of a topic that does not specify a number",
    )  # fmt: skip
    delete_topic_enable: bool = setting(
        "delete.topic.enable", ConfigType.BOOLEAN, True, is_dynamic=True,
        why="whether topics can be deleted at all",
    )  # fmt: skip
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", ConfigType.INT, 57_671_680, "bytes", is_dynamic=True, low=1024,
        why="the largest fetch answer, whatever the client asks for",
    )  # fmt: skip
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate", ConfigType.LONG, LONG_MAX, "bytes/s",
        is_dynamic=True, low=0,
        why="the bytes a second that this broker receives for copies of the replicas in the lists "
        "follower.replication.throttled.replicas; 0 stops them",
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", ConfigType.INT, 3_000, "ms", low=0,
        why="an empty group waits for more members before it assigns the partitions",
    )  # fmt: skip
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", ConfigType.INT, 1_800_000, "ms", low=1,
        why="a longer timeout would hide a dead member",
    )  # fmt: skip
    group_max_size: int = setting(
        "group.max.size", ConfigType.INT, INT_MAX, "members", low=1,
        why="more members than this are refused",
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", ConfigType.INT, 6_000, "ms", low=1,
        why="a shorter timeout would remove members after a short pause",
    )  # fmt: skip
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate", ConfigType.LONG, LONG_MAX, "bytes/s", is_dynamic=True,
        low=0,
        why="the bytes a second that this broker sends for copies of the partitions in the lists "
        "leader.replication.throttled.replicas; 0 stops them",
    )  # fmt: skip
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", ConfigType.LONG, 15_000, "ms", low=0,
        why="how often logs are checked for cleaning",
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", ConfigType.LONG, 134_217_728, "bytes", low=1_048_576,
        why="the memory of one cleaning: what does not fit waits for the next",
    )  # fmt: skip
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", ConfigType.BOOLEAN, True,
        why="without it compacted topics, such as the committed offsets, grow forever",
    )  # fmt: skip
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", ConfigType.INT, 60_000, "ms", low=1,
        why="how old the recovery points on disk can be: more means a longer check after a crash",
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", ConfigType.LONG, 1_000, "ms", low=1,
        why="how often logs with flush.ms are checked",
    )  # fmt: skip
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", ConfigType.LONG, 300_000, "ms", low=1,
        why="how often the broker looks for old segments",
    )  # fmt: skip
    num_partitions: int = setting(
        "num.partitions", ConfigType.INT, 1, "partitions", low=1, high=10_000,
        is_dynamic=True,
        why="partitions of a topic that does not specify a number",
    )  # fmt: skip
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", ConfigType.INT, 4096, "bytes", low=0,
        why="the longest metadata text with a committed offset, in UTF-16 units as in Kafka",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", ConfigType.LONG, 600_000, "ms", low=1,
        why="how often the broker looks for expired offsets",
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", ConfigType.INT, 10_080, "minutes", low=1,
        why="how long a group without members keeps its offsets",
    )  # fmt: skip
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", ConfigType.INT, 6, "partitions", low=1,
        why="groups are spread over these; fixed once the topic exists",
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", ConfigType.SHORT, 1, "replicas", low=1, high=32_767,
        why="replicas of the committed offsets",
    )  # fmt: skip
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", ConfigType.INT, 4_194_304, "bytes", low=1024,
        why="small, so that reloading a coordinator is short",
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", ConfigType.INT, 600_000, "ms", low=1,
        why="how often the broker looks for expired producers",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", ConfigType.INT, 86_400_000, "ms", low=1,
        why="how long an unused producer is remembered, so that its retry is recognised",
    )  # fmt: skip
    super_users: str = setting(
        "super.users", ConfigType.STRING, "",
        why="users that may do everything on a listener with a login, whatever the ACLs say",
        pattern=r"(User:[A-Za-z0-9._-]{1,64}(;User:[A-Za-z0-9._-]{1,64})*)?",
        form="User:NAME;User:NAME;…, or nothing",
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", ConfigType.INT, 10_000, "ms",
        low=1,
        why="how often the broker looks for transactions that have timed out",
    )  # fmt: skip
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", ConfigType.INT, 900_000, "ms", low=1,
        why="an open transaction holds back every read_committed reader of its partitions",
    )  # fmt: skip
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", ConfigType.INT, 3_600_000,
        "ms", low=1,
        why="how often the broker looks for expired transactional ids",
    )  # fmt: skip
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", ConfigType.INT, 2, "replicas", low=1,
        why="in-sync replicas that the state of transactions needs, at most as many as exist",
    )  # fmt: skip
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", ConfigType.INT, 3, "partitions", low=1,
        why="transactional ids are spread over these; fixed once the topic exists",
    )  # fmt: skip
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", ConfigType.SHORT, 1, "replicas", low=1,
        high=32_767,
        why="replicas of the state of transactions",
    )  # fmt: skip
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", ConfigType.INT, 4_194_304, "bytes", low=1024,
        why="small, so that reloading a coordinator is short",
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", ConfigType.INT, 604_800_000, "ms", low=1,
        why="how long an unused transactional id is remembered",
    )  # fmt: skip

"""The settings that limit the frames, connections and memory that clients can use.

This module is pure. It has a limit for everything whose length, size or number a peer can raise,
under Kafka's key if Kafka has one. Tests reach every limit. The listeners MILL and BROKER have
connection limits of their own, as Kafka reserves connections for the listener between its brokers.
So the mill's own parts can always connect.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.settings import INT_MAX, ConfigType, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitKeys:
    """The limits, as a part of `BrokerKeys`."""

    connection_first_byte_timeout_ms: int = setting(
        "connection.first.byte.timeout.ms", ConfigType.LONG, 10_000, "ms", low=1,
        why="a silent connection uses a slot; a client that connects early can connect again",
    )  # fmt: skip
    connection_frame_timeout_ms: int = setting(
        "connection.frame.timeout.ms", ConfigType.LONG, 30_000, "ms", low=1,
        why="from a request's first byte to its last: a peer that sends slowly is disconnected",
    )  # fmt: skip
    connection_max_bytes_in_flight: int = setting(
        "connection.max.bytes.in.flight", ConfigType.INT, 16_777_216, "bytes", low=1,
        why="unanswered requests of one connection; above it nothing more is read from it",
    )  # fmt: skip
    connection_max_requests_in_flight: int = setting(
        "connection.max.requests.in.flight", ConfigType.INT, 64, "requests", low=1,
        why="unanswered requests of one connection; above it nothing more is read from it",
    )  # fmt: skip
    connection_max_unread_bytes: int = setting(
        "connection.max.unread.bytes", ConfigType.INT, 67_108_864, "bytes", low=1,
        why="answers kept in memory for a peer that does not read; above it the connection closes",
    )  # fmt: skip
    max_auto_created_topics: int = setting(
        "max.auto.created.topics", ConfigType.INT, 100, "topics", low=1,
        why="topics created by one metadata request; later requests create the others",
    )  # fmt: skip
    max_batch_records: int = setting(
        "max.batch.records", ConfigType.INT, 100_000, "records", low=1,
        why="a compacted topic checks every key, and a search by time every timestamp",
    )  # fmt: skip
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", ConfigType.INT, INT_MAX, "connections a second", low=1,
        why="excess connections are closed at once; MILL and BROKER are counted separately",
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", ConfigType.INT, 10_000, "connections", is_dynamic=True, low=1,
        why="each has a buffer; MILL and BROKER together have the same number for themselves",
    )  # fmt: skip
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", ConfigType.INT, 2_000, "connections", is_dynamic=True, low=1,
        why="one host or gateway cannot use every slot; MILL and BROKER are counted separately",
    )  # fmt: skip
    max_decompressed_batch_bytes: int = setting(
        "max.decompressed.batch.bytes", ConfigType.INT, 20_971_520, "bytes", low=1024,
        why="a batch is decompressed only up to this size: a megabyte of zstd can hold 32 GiB",
    )  # fmt: skip
    max_group_pending_members: int = setting(
        "max.group.pending.members", ConfigType.INT, 10_000, "members", low=1,
        why="member ids given out in one group with which no member has joined yet",
    )  # fmt: skip
    max_incremental_fetch_session_cache_partitions: int = setting(
        "max.incremental.fetch.session.cache.partitions", ConfigType.INT, 200_000, "partitions",
        low=0,
        why="partitions in all fetch sessions together, each some hundred bytes of memory",
    )  # fmt: skip
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", ConfigType.INT, 1_000, "sessions", low=0,
        why="remembered fetch sessions; a reader without one sends all its partitions each time",
    )  # fmt: skip
    max_member_protocols_bytes: int = setting(
        "max.member.protocols.bytes", ConfigType.INT, 1_048_576, "bytes", low=1024,
        why="what one member of a group sends about its protocols; kept while it is a member",
    )  # fmt: skip
    max_partitions: int = setting(
        "max.partitions", ConfigType.INT, 4_000, "partitions", low=1,
        why="partitions of all topics of the cluster: each needs a folder and open files",
    )  # fmt: skip
    max_pending_metadata_orders: int = setting(
        "max.pending.metadata.orders", ConfigType.INT, 1_000, "orders", low=1,
        why="metadata changes waiting for the disk, including those of clients that have left",
    )  # fmt: skip
    max_pending_metadata_orders_per_ip: int = setting(
        "max.pending.metadata.orders.per.ip", ConfigType.INT, 500, "orders", low=1,
        why="how many of these one host can have, so that others can make changes too",
    )  # fmt: skip
    max_producers_per_partition: int = setting(
        "max.producers.per.partition", ConfigType.INT, 25_000, "producers", low=1,
        why="idempotent producers per partition; above it the least recently used are forgotten",
    )  # fmt: skip
    max_request_elements: int = setting(
        "max.request.elements", ConfigType.INT, 10_000, "elements", low=1_000,
        why="structures, texts and ids in all arrays of one request: 10,000 block the broker for "
        "0.1 s; a request can still name all 4,000 partitions of a cluster",
    )  # fmt: skip
    max_request_numbers: int = setting(
        "max.request.numbers", ConfigType.INT, 10_000, "numbers", low=1_000,
        why="numbers in all arrays of one request; most of them name partitions, of "
        "which a cluster has 4,000",
    )  # fmt: skip
    max_request_tagged_fields: int = setting(
        "max.request.tagged.fields", ConfigType.INT, 64, "fields", low=8,
        why="tagged fields in one structure, known and unknown together",
    )  # fmt: skip
    max_shard_groups: int = setting(
        "max.shard.groups", ConfigType.INT, 10_000, "groups", low=1,
        why="groups in one partition of the offsets topic: with members, and with offsets",
    )  # fmt: skip
    max_shard_transactional_ids: int = setting(
        "max.shard.transactional.ids", ConfigType.INT, 100_000, "ids", low=1,
        why="ids in one partition of the transactions topic; a request for one more is refused",
    )  # fmt: skip
    max_silent_connections: int = setting(
        "max.silent.connections", ConfigType.INT, 1_000, "connections", low=1,
        why="connections that have not sent a byte, or not logged in, yet; MILL, NET and BROKER"
        " are counted separately",
    )  # fmt: skip
    max_topics: int = setting(
        "max.topics", ConfigType.INT, 1_000, "topics", low=1,
        why="topics of the cluster; every client that asks for all of them receives this list",
    )  # fmt: skip
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", ConfigType.LONG, 536_870_912, "bytes", low=1024,
        why="unfinished and waiting requests of all connections; above it connections close",
    )  # fmt: skip
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", ConfigType.INT, 104_857_600, "bytes", low=1024,
        why="a longer frame closes its connection before memory is allocated for it",
    )  # fmt: skip

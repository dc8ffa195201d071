"""Our asyncio client of Kafka's protocol: collector, monitor, command line and brokers use it.

Floor: on top of `protocol`'s messages and wire. `connection` is the only file with a socket in it.
Pure are `producer_core`, `transaction_core`, `group_core` with `group_leader` and `group_requests`,
`fetch_core`, `record_buffer`, `assignment`, `assignors`, `sticky`, `partitioner`, `metadata` and
`backoff`. It speaks to Apache Kafka as well as to our own broker, and never above the versions it
was tested with.
"""

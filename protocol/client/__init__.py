"""Our asyncio client of Kafka's protocol: collector, monitor, command line and brokers use it.

Floor: on top of `protocol`'s messages and wire. `connection` is the only file with a socket in it;
`producer_core`, `partitioner`, `metadata`, `backoff` and `fetch_core` are pure. It speaks to Apache
Kafka as well as to our own broker, and never above the versions it was tested with.
"""

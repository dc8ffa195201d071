"""An asyncio client of Kafka's protocol, for the collector, the monitor, the command line and
brokers.

Only `connection` uses a socket. These modules are pure: `producer_core`, `transaction_core`,
`group_core` with `group_leader` and `group_requests`, `fetch_core`, `record_buffer`, `assignment`,
`assignors`, `sticky`, `partitioner`, `metadata` and `backoff`. The client works with Apache Kafka
and with Millrace's broker. It never uses versions above those it was tested with.
"""

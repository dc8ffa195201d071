"""Facts about kafka-python that tests need."""

POLL_S = 2.0
"""The maximum time of its consumers' polls. They return earlier, with the first records. A consumer
of version 3.0.12 can lose its assignment if the poll in which it joined its group ends before the
response to SyncGroup. From then on it counts itself as a member and sends heartbeats, but it never
joins again and has no partitions. With polls of 50 ms this happened in one of nine starts on a busy
machine."""

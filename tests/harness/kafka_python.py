"""Facts about kafka-python that tests need."""

POLL_S = 2.0
"""The maximum time of its consumers' polls; they return earlier, with the first records.

Version 3.0.12 never takes up what it was assigned if the poll in which it joined its group was over
before SyncGroup was answered: it calls itself a member from there on, sends heartbeats, joins no
more, and owns nothing. With polls of 50 ms that happened in one of nine starts on a busy machine.
"""

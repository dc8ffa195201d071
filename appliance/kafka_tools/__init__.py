"""Kafka's own command lines: its option names and its output, over the functions of `kafka`."""

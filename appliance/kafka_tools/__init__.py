"""Kafka's own command lines, with its option names and its output, over the functions of
`kafka`."""

"""Reads or generates lines and counts for single commands: generated lines, lines of a file, counts
of a sink."""

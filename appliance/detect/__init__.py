"""Naming the format of an unknown log, and counting it (decision 0122).

`detection.detect` is pure: lines in, a `Detection` out. `files` reads a log's first lines as the
collector would, `applying` writes a proposal into the configuration and takes it back.
"""

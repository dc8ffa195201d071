"""Detect the format of an unknown log, and propose a configuration that counts it (decision 0122).

`detection.detect` is pure: lines in, a `Detection` out. `files` reads a log's first lines as the
collector would. `applying` writes a proposal into the configuration, and can remove it again.
"""

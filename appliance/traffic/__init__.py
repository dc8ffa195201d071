"""Sources of lines and counts for single commands: generated lines, a file, or a sink."""

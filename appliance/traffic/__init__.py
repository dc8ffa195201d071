"""Lines and counts as single commands use them: made up, read from a file, read from a sink."""

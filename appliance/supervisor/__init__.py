"""Starts the parts in order, watches and restarts them, and stops them in order."""

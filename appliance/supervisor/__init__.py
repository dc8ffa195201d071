"""Starts the parts in order, watches them, restarts them, stops them in order."""

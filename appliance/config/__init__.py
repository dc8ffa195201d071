"""The one configuration file: reading, checking, and every fault at once with its place."""

"""Starts parts: this process becomes a process of a room, or Redis or MySQL."""

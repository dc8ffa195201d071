"""Starts parts: replaces this process by a process of Millrace, Redis or MySQL."""

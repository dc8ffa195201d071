"""Copies of a whole mill while it runs, and mills made of copies (decision 0082)."""

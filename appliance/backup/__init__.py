"""Take a backup of a whole mill while it runs, and restore a mill from a backup (decision 0082)."""

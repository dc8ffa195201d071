"""Start the parts in order, watch them, restart them, and stop them in order."""

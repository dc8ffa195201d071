"""Start, follow and stop a whole mill, from outside of its supervisor."""

"""Starts, follows and stops a whole mill, by means of its supervisor."""

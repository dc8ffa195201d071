"""The one configuration file: reads and checks it, and reports all faults at once, each with its
position."""

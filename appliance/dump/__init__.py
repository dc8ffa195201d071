"""Log files read from outside of any broker: printed as Kafka prints them, and checked."""

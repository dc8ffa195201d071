"""Read log files without a broker: print them as Kafka does, and check them."""

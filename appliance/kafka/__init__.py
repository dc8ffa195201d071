"""The work of the commands about a Kafka cluster. Results are data, which the caller prints."""

"""The work of the commands about a Kafka cluster: answers as data, which the caller prints."""

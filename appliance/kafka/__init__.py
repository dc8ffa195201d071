"""What the commands about a Kafka cluster do: answers as data, printed by whoever asked."""

"""Commands with the option names and the output of Kafka's own tools. They use the functions of the
package `kafka`."""

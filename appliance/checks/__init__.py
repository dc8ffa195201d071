"""What the commands check before they act: the machine, the databases and the expressions."""

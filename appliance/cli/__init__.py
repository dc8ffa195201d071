"""The `millrace` command: thin commands that call the other packages of the appliance."""

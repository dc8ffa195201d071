"""The `millrace` command: thin commands over the rest of the appliance."""

"""The folders, secrets and parts of one mill, and the settings of each part."""

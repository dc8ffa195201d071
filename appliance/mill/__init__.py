"""What one mill consists of: its folders, secrets and parts, and the settings of each part."""

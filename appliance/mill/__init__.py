"""What one mill consists of: its folders, secrets and parts, and the settings each part gets."""

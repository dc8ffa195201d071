"""How a part starts: its process becomes a process of its room, or Redis or MySQL."""

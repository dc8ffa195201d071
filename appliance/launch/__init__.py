"""How a part starts: its process becomes that of a room, Redis or MySQL."""

"""What a controller keeps for the next one, and how that one goes on."""

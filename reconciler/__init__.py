"""Floor 3, scheduled work and HTTP out: the only room that contacts providers."""

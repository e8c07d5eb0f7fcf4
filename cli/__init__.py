"""Floor 4, the composition root: the `gateway` command, its clock, ids and chance, its configuration."""

"""`gateway demo`: the simulator and the whole house on loopback, driven by a script that says beforehand how everything must end."""

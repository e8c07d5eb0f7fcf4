"""Beside the house: a provider that misbehaves on purpose (MISSION H6). It knows nothing of the house but its shapes."""

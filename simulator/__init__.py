"""Beside the house: a provider that misbehaves on purpose (demo, local development, fault tests)."""

"""Sealing anew."""

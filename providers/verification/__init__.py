"""Verification: bytes, secrets and a time in; Verified or Refused out. Pure and total (MISSION B1)."""

from providers.verification.engine import PRIMITIVES, Verifier, check_secret, prepare, verify

__all__ = ["PRIMITIVES", "Verifier", "check_secret", "prepare", "verify"]

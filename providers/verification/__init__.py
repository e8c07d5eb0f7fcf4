"""Verification: bytes, secrets and a time in; Verified or Refused out. Pure and total (MISSION B1)."""

from providers.verification.engine import PRIMITIVES, Verifier, check_secret, prepare, verify
from providers.verification.keystore import NO_KEYS, KeyStore, NamedKey
from providers.verification.sources import key_urls

__all__ = ["NO_KEYS", "PRIMITIVES", "KeyStore", "NamedKey", "Verifier", "check_secret", "key_urls", "prepare", "verify"]

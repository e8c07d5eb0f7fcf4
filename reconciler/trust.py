"""Whom TLS believes: certificates of the system's roots, for the very host that is called, by TLS 1.2 or later (F3).

`SSLKEYLOGFILE`, which Python's default context honours, is not: a variable of the environment must not write down what
is said to providers. `SSL_CERT_FILE` and `SSL_CERT_DIR` are OpenSSL's way to name other roots, and stay the operator's.
"""

import functools
import ssl
from pathlib import Path

import certifi


@functools.cache
def trusted() -> ssl.SSLContext:
    """Return the context of all calls; made once, since reading the roots takes 20 ms. Where a slim system has no roots: certifi's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.load_default_certs()
    if not has_roots(context):
        context.load_verify_locations(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def has_roots(context: ssl.SSLContext) -> bool:
    """Return whether any root is loaded, or lies in the folder from which OpenSSL loads them when they are needed."""
    folder = ssl.get_default_verify_paths().capath
    return bool(context.cert_store_stats()["x509_ca"]) or (folder is not None and any(Path(folder).iterdir()))

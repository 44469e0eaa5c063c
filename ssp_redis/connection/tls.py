"""Failures of TLS that do not pass by themselves, and what to do about each."""

from __future__ import annotations

import ssl

from ..errors import ServerRefused

#: What OpenSSL says, and what it means. The first that fits.
_CURES = {
    "Hostname mismatch": "its certificate is for another name: connect by that name, or add ssl_check_hostname=false",
    "IP address mismatch": "its certificate is for another address: connect by the name in it, or add "
    "ssl_check_hostname=false",
    "certificate has expired": "its certificate has expired: renew it",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not from a CA that is trusted here: name the CA's file in the "
    "URL, ?ssl_ca_certs=FILE",
    "CERTIFICATE_REQUIRED": "it wants a certificate of ours: add ssl_certfile=FILE&ssl_keyfile=FILE to the URL",
    "HANDSHAKE_FAILURE": "it takes no such connection; it may want a certificate: ssl_certfile=FILE&ssl_keyfile=FILE",
    "WRONG_VERSION_NUMBER": "it does not speak TLS at this port: use redis://, or the port for TLS",
    "RECORD_LAYER_FAILURE": "it does not speak TLS at this port: use redis://, or the port for TLS",
}


def distrusted(error: BaseException, label: str) -> ServerRefused | None:
    """The exception for a failure of TLS that is behind ``error`` and will not pass; None: there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    text = str(error) if cause is None else str(cause)
    for sign, cure in _CURES.items():
        if sign in text or sign.replace("_", " ").lower() in text.lower():
            if cause is None and "SSL" not in text.upper():
                return None
            return ServerRefused(f"{label} cannot be trusted: {text} — {cure}")
    return None


def hint(error: BaseException, label: str) -> str:
    """What a failure may come from that looks as if one side spoke TLS and the other did not; "" for others."""
    text = str(error).lower()
    if label.startswith("rediss") and "timeout" in text:
        return " (does it speak TLS at this port? if not: redis://)"
    if not label.startswith(("rediss", "unix")) and ("closed" in text or "reset" in text or "protocol error" in text):
        return " (does it speak TLS at this port? if so: rediss://)"
    return ""

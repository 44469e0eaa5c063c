"""Certificates made for a test by the ``openssl`` command."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Certificates:
    """Paths of PEM files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = self._authority("ca")
        #: Knows nothing of the others.
        self.other_ca = self._authority("other")
        self.server, self.server_key = self._signed("server", "DNS:localhost,IP:127.0.0.1")
        #: Is for another host.
        self.elsewhere, self.elsewhere_key = self._signed("elsewhere", "DNS:elsewhere.example")
        self.client, self.client_key = self._signed("client", "DNS:client")

    def listen(self, certificate: str = "server", clients: str = "no") -> list[str]:
        """Arguments of a server that uses one; ``clients``: must they show theirs?"""
        file, key = (self._folder / f"{certificate}.{end}" for end in ("pem", "key"))
        return [
            *("--tls-cert-file", str(file), "--tls-key-file", str(key)),
            *("--tls-ca-cert-file", str(self.ca), "--tls-auth-clients", clients),
        ]

    def _authority(self, name: str) -> Path:
        file, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        self._openssl("req", "-x509", *_NEW, "-keyout", key, "-out", file, "-subj", f"/CN=test {name}")
        return file

    def _signed(self, name: str, names: str) -> tuple[Path, Path]:
        file, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request, extra = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        self._openssl("req", *_NEW, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extra.write_text(f"subjectAltName={names}\n")
        signer = ("-CA", self.ca, "-CAkey", self.ca.with_suffix(".key"), "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", extra, "-out", file)
        return file, key

    @staticmethod
    def _openssl(*words: str | Path) -> None:
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")

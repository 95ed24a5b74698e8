"""Certificate and key of a server, looked at before anything listens."""

from __future__ import annotations

import logging
import ssl
import stat
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from farthing.errors import FarthingError

logger = logging.getLogger("farthing.server.http")


class ClientCertificates(Enum):
    """Whether clients must show a certificate that ``ca_certs`` vouch for."""

    NONE = ssl.CERT_NONE
    OPTIONAL = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with those up to its root, its key, and who vouches for clients.

    ``keyfile`` None: the key stands in ``certfile``. ``ciphers`` None: what Python thinks safe.
    """

    certfile: Path
    keyfile: Path | None = None
    keyfile_password: str | None = None
    ca_certs: Path | None = None
    client_certificates: ClientCertificates = ClientCertificates.NONE
    ciphers: str | None = None

    def context(self) -> ssl.SSLContext:
        """A context for :func:`farthing.server.http.protocol.make_protocol`; TLS 1.2 and later.

        Raises :class:`FarthingError` if a file is missing, cannot be read, is not what it should
        be, or if key and certificate do not belong together.
        """
        keyfile = self.keyfile or self.certfile
        _check_pem(self.certfile, "certificate", b"-----BEGIN CERTIFICATE-----")
        _check_pem(keyfile, "private key", b"PRIVATE KEY-----")
        if stat.S_IMODE(keyfile.stat().st_mode) & stat.S_IROTH:
            logger.warning("%s: others on this machine can read the key; chmod 600 it", keyfile)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_chain(context, keyfile)
        if self.ca_certs is not None:
            _check_pem(self.ca_certs, "certificate", b"-----BEGIN CERTIFICATE-----")
            try:
                context.load_verify_locations(self.ca_certs)
            except ssl.SSLError as error:
                raise _unusable(self.ca_certs, error) from None
        elif self.client_certificates is not ClientCertificates.NONE:
            raise FarthingError("certificates of clients need a file of those who vouch for them")
        context.verify_mode = ssl.VerifyMode(self.client_certificates.value)
        if self.ciphers is not None:
            try:
                context.set_ciphers(self.ciphers)
            except ssl.SSLError:
                raise FarthingError(f"OpenSSL knows no cipher in {self.ciphers!r}") from None
        return context

    def _load_chain(self, context: ssl.SSLContext, keyfile: Path) -> None:
        def password() -> str:
            if self.keyfile_password is None:  # nobody is there to be asked at a terminal
                raise FarthingError(f"the key in {keyfile} is encrypted; give its password")
            return self.keyfile_password

        try:
            context.load_cert_chain(self.certfile, keyfile, password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise FarthingError(
                    f"the key in {keyfile} is not the one of the certificate in {self.certfile}"
                ) from None
            if self.keyfile_password is not None and b"ENCRYPTED" in keyfile.read_bytes():
                raise FarthingError(
                    f"the key in {keyfile} cannot be decrypted with this password"
                ) from None
            raise _unusable(self.certfile, error) from None


def _check_pem(file: Path, what: str, mark: bytes) -> None:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise FarthingError(f"cannot read the {what} in {file}: {error.strerror}") from None
    if mark not in raw:
        raise FarthingError(f"there is no {what} in {file}: it must be a PEM file with one")


def _unusable(file: Path, error: ssl.SSLError) -> FarthingError:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return FarthingError(f"OpenSSL cannot use {file}: {reason}")

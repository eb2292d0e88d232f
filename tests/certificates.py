"""Certificates of tests: an authority, and what it has signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM
#: What the key of an authority may be used for.
_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates.

    Args:
        folder: gets its own certificate, and those that it signs.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=9))
            .not_valid_after(now + dt.timedelta(days=9))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(_key_name(self._key), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        #: Its own certificate: whoever trusts it trusts what it has signed.
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(_PEM))

    def signed(
        self, *names: str, days: tuple[int, int] = (-1, 2), password: bytes | None = None
    ) -> tuple[Path, Path]:
        """The files of a certificate and of its key.

        Args:
            names: host names and addresses that it is for.
            days: from when it is valid, and to when, counted from now.
            password: of its key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named("run"))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=days[0]))
            .not_valid_after(now + dt.timedelta(days=days[1]))
            .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), False)
            # Python 3.13 trusts none without: it asks for what RFC 5280 demands.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .sign(self._key, hashes.SHA256())
        )
        certificate = self._folder / f"{made.serial_number:x}.pem"
        certificate.write_bytes(made.public_bytes(_PEM))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            hidden = serialization.BestAvailableEncryption(password)
        of_key = certificate.with_suffix(".key")
        of_key.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, hidden))
        return certificate, of_key


def _key_name(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

# SPDX-License-Identifier: Apache-2.0
"""The certificates of a farm: one authority, and one for each of scheduler, worker and client.

Whoever has a certificate of the authority may take part, with every right: a task is code. So the
private keys are secrets, and that of the authority signs new ones and stays where it was made.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernforge.errors import UsageError
from kernforge.system import files
from kernforge.system.environment import expanded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, KeyUsage, Name

    from kernforge.system.environment import Environment

ROLES = ("scheduler", "worker", "client")
"""Who has a certificate of their own."""
AUTHORITY = "ca"
_AUTHORITY_DAYS = 3650
_YESTERDAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key.

    Attributes:
        authority: the authority's certificate.
        certificate: PEM file.
        key: PEM file, for its owner alone.
    """

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Made:
    """What was made.

    Attributes:
        expires: the day after which the certificates of the roles are refused.
        authority_expires: the same of the authority's.
    """

    directory: Path
    expires: dt.date
    authority_expires: dt.date


def directory(environment: Environment) -> Path:
    """Where the certificates are: ``KERNFORGE_FARM``, else ``farm`` in the user's configuration."""
    named = environment.kernforge_farm
    return expanded(named) if named else environment.user_config / "farm"


def pair(where: Path, role: str) -> Pair | None:
    """The certificate of a role; None where there is none.

    Raises:
        UsageError: it has expired, or one of its files is missing.
    """
    found = Pair(
        authority=where / f"{AUTHORITY}.pem",
        certificate=where / f"{role}.pem",
        key=where / f"{role}.key",
    )
    missing = [
        path for path in (found.authority, found.certificate, found.key) if not path.exists()
    ]
    if len(missing) == len(ROLES) or not where.is_dir():
        return None
    if missing:
        raise UsageError(
            f"{missing[0]} is missing",
            hint=f"copy {AUTHORITY}.pem, {role}.pem and {role}.key from where `kernforge farm init` "
            "was run, or run it here for a new farm",
        )
    for path in (found.authority, found.certificate):
        expires = _read(path).not_valid_after_utc
        if expires < _now():
            raise UsageError(
                f"the certificate {path} expired on {expires:%Y-%m-%d}",
                hint="`kernforge farm init --renew` where it was made, then copy the new files",
            )
    return found


def init(where: Path, *, days: int) -> Made:
    """Make an authority and the certificates of all roles.

    Args:
        where: a directory that has none yet.
        days: how long the certificates are valid; the authority's is for ten years.

    Raises:
        UsageError: it has some already.
    """
    if (where / f"{AUTHORITY}.key").exists() or (where / f"{AUTHORITY}.pem").exists():
        raise UsageError(
            f"{where} has certificates already",
            hint="--renew makes new ones of the same authority; for a new authority, which refuses "
            "all old certificates, name another directory or move this one away",
        )
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("kernforge farm")
    certificate = (
        _builder(name, name, key, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    files.make_dir(where)
    where.chmod(0o700)
    _write(where, AUTHORITY, certificate, key)
    return renew(where, days=days)


def renew(where: Path, *, days: int) -> Made:
    """Make new certificates of all roles, by the authority that is there.

    Raises:
        UsageError: there is none, or its key is elsewhere.
    """
    try:
        authority = _read(where / f"{AUTHORITY}.pem")
        data = (where / f"{AUTHORITY}.key").read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} is missing: only who has it can make certificates",
            hint="run this where `kernforge farm init` was run",
        ) from error
    signer = serialization.load_pem_private_key(data, None)
    if authority.not_valid_after_utc < _now():
        raise UsageError(
            f"the authority {where / AUTHORITY}.pem expired",
            hint="move the directory away and run `kernforge farm init`",
        )
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _role(role, key, authority, days).sign(signer, hashes.SHA256())  # type: ignore[arg-type]
        _write(where, role, made, key)
    return Made(
        where,
        _read(where / "client.pem").not_valid_after_utc.date(),
        authority.not_valid_after_utc.date(),
    )


_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _role(
    role: str, key: EllipticCurvePrivateKey, authority: Certificate, days: int
) -> CertificateBuilder:
    # Scheduler and workers listen and connect; a client only connects, and cannot pose as either.
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role != "client":
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer_key = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    days = min(days, (authority.not_valid_after_utc - _now()).days)
    return (
        _builder(_name(f"kernforge farm {role}"), authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key.value),
            critical=False,
        )
    )


def _usage(*allowed: str) -> KeyUsage:
    return x509.KeyUsage(**{name: name in allowed for name in _USAGES})


def _builder(
    subject: Name, issuer: Name, key: EllipticCurvePrivateKey, days: int
) -> CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of a farm's machines differ.
        .not_valid_before(_now() - _YESTERDAY)
        .not_valid_after(_now() + dt.timedelta(days=days))
    )


def _name(text: str) -> Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write(where: Path, name: str, certificate: Certificate, key: EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files.write_atomic(where / f"{name}.key", pem, mode=0o600)
    public = certificate.public_bytes(serialization.Encoding.PEM)
    files.write_atomic(where / f"{name}.pem", public, mode=0o600)


def _read(path: Path) -> Certificate:
    data = path.read_bytes()
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError as error:
        raise UsageError(
            f"{path} is not a certificate: {error}", hint="copy it again from where it was made"
        ) from error


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)

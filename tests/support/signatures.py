# SPDX-License-Identifier: Apache-2.0
"""A Sigstore instance of one process: a certificate authority, its log, and a transparency log.

Inside ``as_public`` the ``sigstore`` package takes it for the public instance: its verifier accepts
what was signed here. ``serve`` answers as Fulcio and Rekor do, so that its signer signs here too.
"""

import base64
import contextlib
import datetime as dt
import hashlib
import json
import struct
import time
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support import bad_server

from kernforge.trust import signature

ECDSA = ec.ECDSA(hashes.SHA256())
_HOUR = dt.timedelta(hours=1)
_FULCIO = "1.3.6.1.4.1.57264.1"
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER = "https://issuer.example"
IDENTITY = "https://git.example/acme/kernels/.github/workflows/build.yaml@refs/heads/main"
SOURCE = "https://git.example/acme/kernels"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def spki(key) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _utf8(text: str) -> bytes:
    body = text.encode()
    size = bytes([len(body)]) if len(body) < 0x80 else bytes([0x81, len(body)])
    return b"\x0c" + size + body


class Sigstore:
    def __init__(self) -> None:
        self.authority = ec.generate_private_key(ec.SECP256R1())
        self.ct_log = ec.generate_private_key(ec.SECP256R1())
        self.rekor = ec.generate_private_key(ec.SECP256R1())
        self.now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.root = (
            self._builder(self.authority.public_key(), self.name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()),
                critical=False,
            )
            .sign(self.authority, hashes.SHA256())
        )

    def _builder(self, key, subject):
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - _HOUR)
            .not_valid_after(self.now + _HOUR)
        )

    def certificate(self, key, issuer, identity, source):
        """A signing certificate as Fulcio makes it, in its certificate log."""
        name = (
            x509.RFC822Name(identity)
            if "@" in identity and "/" not in identity
            else x509.UniformResourceIdentifier(identity)
        )
        builder = (
            self._builder(key, x509.Name([]))
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
        )
        claims = {"1": issuer.encode(), "8": _utf8(issuer)}
        claims |= {"12": _utf8(source)} if source else {}
        for arc, value in claims.items():
            oid = x509.ObjectIdentifier(f"{_FULCIO}.{arc}")
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
        before = builder.sign(self.authority, hashes.SHA256())
        timestamps = self._signed_timestamps(before.tbs_certificate_bytes)
        return builder.add_extension(
            x509.UnrecognizedExtension(_SCT_LIST, timestamps), critical=False
        ).sign(self.authority, hashes.SHA256())

    def _signed_timestamps(self, tbs: bytes) -> bytes:
        """RFC 6962, section 3.2 and 3.3: one timestamp of the precertificate, as an extension."""
        millis = int(self.now.timestamp() * 1000)
        issuer = hashlib.sha256(spki(self.authority.public_key())).digest()
        entry = issuer + len(tbs).to_bytes(3) + tbs
        signed = struct.pack("!BBQH", 0, 0, millis, 1) + entry + b"\0\0"
        signature = self.ct_log.sign(signed, ECDSA)
        log_id = hashlib.sha256(spki(self.ct_log.public_key())).digest()
        sct = b"\0" + log_id + struct.pack("!QH", millis, 0) + b"\x04\x03"
        sct += struct.pack("!H", len(signature)) + signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        size = bytes([len(listed)]) if len(listed) < 0x80 else bytes([0x81, len(listed)])
        return b"\x04" + size + listed

    def log(self, body: bytes) -> dict:
        """An entry that is alone in the log, as Rekor's API answers."""
        log_id = hashlib.sha256(spki(self.rekor.public_key())).digest()
        promise = {
            "body": b64(body),
            "integratedTime": int(time.time()),
            "logID": log_id.hex(),
            "logIndex": 0,
        }
        canonical = json.dumps(promise, separators=(",", ":"), sort_keys=True).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"log.example - 1\n1\n{b64(root)}\n"
        signed = b64(log_id[:4] + self.rekor.sign(note.encode(), ECDSA))
        return promise | {
            "verification": {
                "signedEntryTimestamp": b64(self.rekor.sign(canonical, ECDSA)),
                "inclusionProof": {
                    "logIndex": 0,
                    "rootHash": root.hex(),
                    "treeSize": 1,
                    "hashes": [],
                    "checkpoint": f"{note}\n\N{EM DASH} log.example {signed}\n",
                },
            }
        }

    def sign(self, document: bytes, *, identity=IDENTITY, **claims: str | None) -> bytes:
        """A bundle for a document, as the ``sigstore`` package writes it."""
        with self.serve():
            return signature.sign_with_identity([document], token(identity, **claims))[0]

    @contextlib.contextmanager
    def as_public(self, url: str = "https://log.example"):
        """Make this the instance that the ``sigstore`` package knows as the public one."""
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415 - 0.3 s
        from sigstore.verify import Verifier  # noqa: PLC0415

        config = ClientTrustConfig.from_json(json.dumps(self._client_config(url)))
        verifier = Verifier(trusted_root=config.trusted_root)
        with (
            mock.patch.object(ClientTrustConfig, "production", return_value=config),
            mock.patch.object(Verifier, "production", return_value=verifier),
        ):
            signature._verifier.cache_clear()
            yield
        signature._verifier.cache_clear()

    @contextlib.contextmanager
    def serve(self):
        """Answer as Fulcio and Rekor of the public instance."""

        def answer(handler):
            asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
            if handler.path.endswith("/signingCert"):
                found = self._issue(asked, handler.headers["Authorization"])
            else:
                body = json.dumps(asked, separators=(",", ":"), sort_keys=True).encode()
                found = {"uuid": self.log(body)}
            handler.json(found, 201)

        with bad_server.serve(answer) as server, self.as_public(server.url):
            yield

    def _issue(self, asked: dict, authorization: str) -> dict:
        """Fulcio's answer: a certificate for whom the token names."""
        request = x509.load_pem_x509_csr(base64.b64decode(asked["certificateSigningRequest"]))
        payload = authorization.split()[1].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        made = self.certificate(
            request.public_key(), claims["iss"], claims["sub"], claims["source"]
        )
        chain = [c.public_bytes(serialization.Encoding.PEM).decode() for c in (made, self.root)]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _client_config(self, url: str) -> dict:
        service = {
            "url": url,
            "majorApiVersion": 1,
            "operator": "test",
            "validFor": {"start": (self.now - _HOUR).isoformat().replace("+00:00", "Z")},
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self._trusted_root(url),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "oidcUrls": [],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": [],
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def _trusted_root(self, url: str) -> dict:
        start = {"start": (self.now - _HOUR).isoformat().replace("+00:00", "Z")}

        def log(key):
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": b64(spki(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": start,
                },
                "logId": {"keyId": b64(hashlib.sha256(spki(key)).digest())},
            }

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.rekor.public_key())],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "test", "commonName": "test authority"},
                    "uri": url,
                    "certChain": {
                        "certificates": [
                            {"rawBytes": b64(self.root.public_bytes(serialization.Encoding.DER))}
                        ]
                    },
                    "validFor": start,
                }
            ],
            "ctlogs": [log(self.ct_log.public_key())],
            "timestampAuthorities": [],
        }


def token(subject: str, *, issuer: str = ISSUER, source: str | None = SOURCE) -> str:
    """An identity token; only Fulcio would check who signed it."""
    now = int(time.time())
    claims = {"iss": issuer, "sub": subject, "aud": "sigstore", "iat": now, "exp": now + 600}
    claims["source"] = source
    parts = (json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"signature")
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

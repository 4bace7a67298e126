"""Keys of the record (Ed25519), which sign checkpoints and seal the ends of chains.

A seal is an HMAC over the head of a chain that no checkpoint covers yet. An attacker who changes a store without the
key can neither sign nor seal. The keys are in PEM, in a file that only its owner can read, made at the first start, or
in an environment variable. The first private key signs. The others, which may be public, verify earlier signatures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..data_directory import SecretFile
from ..errors import ConfigError
from .chain import ChainHead, canonical_json

_FILE = SecretFile(
    "the record's key",
    "there is no key to sign the record with; `pellucid serve` makes it once",
    "PELLUCID_RECORD_KEY",
)
_PEM = serialization.Encoding.PEM
_SIGNATURE_PREFIX = b"pellucid/checkpoint/1\n"
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)


class Signer:
    """A private key, which signs and seals."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._seal_key = sha256(b"pellucid/record/seal/1\n" + key.private_bytes_raw()).digest()
        self.public = key.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    @classmethod
    def generate(cls) -> Signer:
        """Make a new random key."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, body: bytes) -> bytes:
        """Return the signature of a checkpoint with this body."""
        return self._key.sign(_SIGNATURE_PREFIX + body)

    def seal(self, head: ChainHead) -> bytes:
        """Return the seal of a chain with this head."""
        fields = [head.owner, head.scope, head.number, head.hash.hex(), head.signed]
        return hmac(self._seal_key, canonical_json(fields), "sha256")

    def pem(self) -> bytes:
        """Return the private key in PEM. This is a secret."""
        return self._key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


class Recording:
    """Whether stored contents are recorded, and with which keys.

    Args:
        is_enabled: Whether contents are recorded.
        signers: The first one signs and seals; the others check earlier seals. If empty, chains are not sealed.
        trusted: The public keys that verify checkpoints, by id.
    """

    def __init__(
        self, is_enabled: bool = True, signers: Sequence[Signer] = (), trusted: Mapping[str, bytes] | None = None
    ) -> None:
        self.is_enabled, self.signers, self.trusted = is_enabled, tuple(signers), trusted or {}
        self.unsigned_count = 0
        """Number of entries that this process wrote since the last checkpoint (`RecordStore.sign` sets it to 0)."""

    def seal(self, head: ChainHead) -> ChainHead:
        """Return a head with its seal, or without one if there is no key."""
        return ChainHead(*head[:5], self.signers[0].seal(head) if self.signers else None)

    def is_sealed(self, head: ChainHead) -> bool:
        """Return whether the seal is valid for one of the keys. Without keys, it is always true."""
        if not self.signers:
            return True
        return head.seal is not None and any(compare_digest(signer.seal(head), head.seal) for signer in self.signers)


def read_recording(path: Path, *, is_enabled: bool = True, create: bool = False) -> Recording:
    """Return a recording with the keys in the environment variable, or else in the file.

    If there are none, a new key is made (`create`), or the recording has no keys.

    Raises:
        ConfigError: If the keys are not valid, or the file is readable by other users.
    """
    where = _FILE.env_variable
    if (value := _FILE.from_environment()) is not None:
        pem = value.encode()
    else:
        if create:
            _FILE.ensure(path, lambda: Signer.generate().pem())
        elif not path.exists():
            return Recording(is_enabled)
        pem, where = _FILE.read(path)[0], str(path)
    signers, trusted = parse_pem_keys(pem, where)
    if not signers:
        raise ConfigError([f"{where}: there is no private key in it to sign the record with"])
    return Recording(is_enabled, signers, trusted)


def read_public_keys(path: Path) -> dict[str, bytes]:
    """Read public keys, by id, from a file, which need not be secret. Raises `ConfigError` if it is not valid."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: the public key cannot be read: {error.strerror}"]) from None
    return parse_pem_keys(data, str(path))[1]


def parse_pem_keys(pem: bytes, where: str) -> tuple[list[Signer], dict[str, bytes]]:
    """Return the private keys, and the public keys of all keys by id, in a PEM text from `where`.

    Raises `ConfigError` if the text is not valid, or contains no key.
    """
    keys = [_load_key(block) for block in _PEM_BLOCK.finditer(pem)]
    public_keys = [key.public if isinstance(key, Signer) else key for key in keys if key is not None]
    if not keys or None in keys:
        message = "it must hold Ed25519 keys in PEM (-----BEGIN PRIVATE KEY-----), without a password"
        raise ConfigError([f"{where}: {message}"])
    return [key for key in keys if isinstance(key, Signer)], {key_id(public): public for public in public_keys}


def _load_key(block: re.Match[bytes]) -> Signer | bytes | None:
    """Load a private key, or a public key as bytes; None if it is neither."""
    pem, is_private = block.group(), block.group(1).endswith(b"PRIVATE KEY")
    try:
        key = serialization.load_pem_private_key(pem, None) if is_private else serialization.load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(key, Ed25519PrivateKey):
        return Signer(key)
    return key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else None


def is_signed(body: bytes, signature: bytes, public: bytes) -> bool:
    """Return whether this is the signature of a checkpoint with this body, by the key with this public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _SIGNATURE_PREFIX + body)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_id(public: bytes) -> str:
    """Return the id of a public key in checkpoints."""
    return sha256(public).hexdigest()[:16]


def public_pem(public: bytes) -> str:
    """Encode a public key in PEM."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

"""Keys of the record (Ed25519), checkpoints and seals.

A signing key also makes seals. A seal is an HMAC over the head of a chain that no checkpoint covers yet; only the
holder of the key can make or check it. An attacker who changes a store without the key can neither sign nor seal.

The key is in a file that only its owner can read (see `data_directory`), made at the first start, or in an environment
variable. Replicas share one key. The format is PEM. The first private key signs. The others, which may be public keys,
verify earlier signatures.

A checkpoint is a signature over heads of chains. It contains the heads of those chains of an owner that have new
entries since the owner's previous checkpoint, and the hash of that checkpoint (`previous`). So the checkpoints of an
owner are a chain themselves, and a scope in a checkpoint cannot vanish. It also contains the hash of the gateway's
previous checkpoint of any owner (`before`), so that an owner cannot vanish with all checkpoints.

The signed bytes are the line `pellucid/checkpoint/1`, followed by the checkpoint as canonical JSON. The hash of a
checkpoint is SHA-256 over this JSON and the signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ..data_directory import SecretFile
from ..errors import ConfigError
from .chain import ChainHead, canonical_json

_FILE = SecretFile(
    "the record's key",
    "there is no key to sign the record with; `pellucid serve` makes it once",
    "PELLUCID_RECORD_KEY",
)

_SIGNATURE_PREFIX = b"pellucid/checkpoint/1\n"
_SEAL_PREFIX = b"pellucid/record/seal/1\n"
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)
_FORMAT_ERROR = "it must hold Ed25519 keys in PEM (-----BEGIN PRIVATE KEY-----), without a password"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed content of a checkpoint."""

    owner: str
    number: int
    """Number among the owner's checkpoints, from 1."""
    previous: str
    """Hash of the owner's previous checkpoint; empty for the first."""
    serial: int
    """Number among the gateway's checkpoints, from 1."""
    before: str
    """Hash of the gateway's previous checkpoint; empty for the first."""
    at: int
    """In milliseconds since 1970."""
    key: str
    """Id of the signing key."""
    heads: dict[str, tuple[int, str]]
    """For each chain with new entries, by scope: number and hash (hexadecimal) of its newest entry."""

    def body(self) -> bytes:
        """Return the checkpoint as canonical JSON."""
        return canonical_json(msgspec.to_builtins(self))


class SignedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint with its signature."""

    checkpoint: Checkpoint
    signature: bytes

    @property
    def hash(self) -> str:
        """Hash of the checkpoint, in hexadecimal."""
        return sha256(self.checkpoint.body() + self.signature).hexdigest()

    def is_valid(self, trusted: TrustedKeys) -> bool:
        """Return whether the signature is valid. The checkpoint's key must be in `trusted`."""
        try:
            key = Ed25519PublicKey.from_public_bytes(trusted[self.checkpoint.key])
            key.verify(self.signature, _SIGNATURE_PREFIX + self.checkpoint.body())
        except (InvalidSignature, ValueError):
            return False
        return True


def sign_checkpoint(signer: Signer, checkpoint: Checkpoint) -> SignedCheckpoint:
    """Sign a checkpoint."""
    return SignedCheckpoint(checkpoint, signer.sign(_SIGNATURE_PREFIX + checkpoint.body()))


def decode_checkpoint(body: bytes) -> Checkpoint | None:
    """Decode the body of a checkpoint; None if it is not exactly the canonical JSON of a checkpoint."""
    try:
        checkpoint = msgspec.json.decode(body, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return checkpoint if checkpoint.body() == body else None


class Signer:
    """A private key, which signs and seals."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._seal_key = sha256(_SEAL_PREFIX + key.private_bytes_raw()).digest()
        self.public = key.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    @classmethod
    def generate(cls) -> Signer:
        """Make a new random key."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature of data."""
        return self._key.sign(data)

    def seal(self, owner: str, scope: str, head: ChainHead, signed_number: int) -> bytes:
        """Return the seal of a chain with this head, whose entries are signed up to `signed_number`."""
        sealed_fields = [owner, scope, head.number, head.hash.hex(), signed_number]
        return hmac(self._seal_key, canonical_json(sealed_fields), "sha256")

    def pem(self) -> bytes:
        """Return the private key in PEM. This is a secret."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        return f"Signer({self.id})"


class TrustedKeys(dict[str, bytes]):
    """Public keys by their ids."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        super().__init__((key_id(key), key) for key in keys)


def key_id(public: bytes) -> str:
    """Return the id of a public key in checkpoints."""
    return sha256(public).hexdigest()[:16]


def public_pem(public: bytes) -> str:
    """Encode a public key in PEM."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Recording:
    """Whether stored contents are recorded, and the keys that seal chains.

    Args:
        is_enabled: Whether contents are recorded.
        signers: The first one makes seals; the others check earlier seals. If empty, chains are not sealed.
    """

    def __init__(self, is_enabled: bool = True, signers: Sequence[Signer] = ()) -> None:
        self.is_enabled = is_enabled
        self.signers = tuple(signers)
        self.unsigned_count = 0
        """Number of entries that this process wrote since the last checkpoint (`RecordStore.sign` sets it to 0)."""

    def seal(self, owner: str, scope: str, head: ChainHead, signed_number: int) -> bytes | None:
        """Return the seal of a chain; None without a key."""
        return self.signers[0].seal(owner, scope, head, signed_number) if self.signers else None

    def is_sealed(self, owner: str, scope: str, head: ChainHead, signed_number: int, seal: bytes | None) -> bool:
        """Return whether the seal is valid for one of the keys. Without keys, it is always true."""
        if not self.signers:
            return True
        return seal is not None and any(
            compare_digest(signer.seal(owner, scope, head, signed_number), seal) for signer in self.signers
        )


class RecordKeys(NamedTuple):
    """The keys in a key file."""

    signers: tuple[Signer, ...]
    """The private keys. The first one signs."""
    trusted: TrustedKeys
    """The public keys of all keys."""


def find_record_keys(path: Path) -> RecordKeys | None:
    """Read the keys from the environment variable, or else from the file; None if neither exists.

    Raises:
        ConfigError: If they are not valid.
    """
    keys = _keys_from_environment()
    return read_record_keys(path) if keys is None and path.exists() else keys


def ensure_record_keys(path: Path) -> RecordKeys:
    """Read the keys from the environment variable, or else from the file, which is made with a new key if needed.

    Raises:
        ConfigError: If they are not valid.
    """
    if (keys := _keys_from_environment()) is not None:
        return keys
    _FILE.ensure(path, lambda: Signer.generate().pem())
    return read_record_keys(path)


def read_record_keys(path: str | Path) -> RecordKeys:
    """Read the keys of a file.

    Raises:
        ConfigError: If the file does not exist, is not valid, or is readable by other users.
    """
    return _parse_private_keys(_FILE.read(Path(path))[0], str(path))


def read_public_keys(path: Path) -> TrustedKeys:
    """Read public keys from a file, which need not be secret.

    Raises:
        ConfigError: If the file cannot be read, or is not valid.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: the public key cannot be read: {error.strerror}"]) from None
    return TrustedKeys(parse_pem_keys(data, str(path))[1])


def parse_pem_keys(pem: bytes, where: str) -> tuple[list[Signer], list[bytes]]:
    """Parse the Ed25519 keys in a PEM text.

    Args:
        pem: The text.
        where: Its origin, for messages.

    Returns:
        The private keys, and the public keys of all keys.

    Raises:
        ConfigError: If the text is not valid, or contains no key.
    """
    signers: list[Signer] = []
    publics: list[bytes] = []
    for block in _PEM_BLOCK.finditer(pem):
        try:
            private = block.group(1).endswith(b"PRIVATE KEY")
            key = load_pem_private_key(block.group(), None) if private else load_pem_public_key(block.group())
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError([f"{where}: {_FORMAT_ERROR}"]) from None
        if isinstance(key, Ed25519PrivateKey):
            signers.append(Signer(key))
            publics.append(signers[-1].public)
        elif isinstance(key, Ed25519PublicKey):
            publics.append(key.public_bytes_raw())
        else:
            raise ConfigError([f"{where}: {_FORMAT_ERROR}"])
    if not publics:
        raise ConfigError([f"{where}: {_FORMAT_ERROR}"])
    return signers, publics


def _keys_from_environment() -> RecordKeys | None:
    value = _FILE.from_environment()
    return _parse_private_keys(value.encode(), _FILE.env_variable) if value is not None else None


def _parse_private_keys(pem: bytes, where: str) -> RecordKeys:
    signers, publics = parse_pem_keys(pem, where)
    if not signers:
        raise ConfigError([f"{where}: there is no private key in it to sign the record with"])
    return RecordKeys(tuple(signers), TrustedKeys(publics))

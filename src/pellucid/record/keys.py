"""Who signs the record (Ed25519), by which keys a signature is checked, and where the key that signs is kept.

A signing key also seals: a seal is an HMAC by which the holder of the key, and nobody else, knows the end of a chain
again that no checkpoint covers yet. Who changes a store without the key can neither sign nor seal.

The key is in a file that only its owner can read (see `data_directory`), made on the first start, or in an environment
variable. Replicas share one. It is PEM; the first private key in it signs, and by the others, which may be public ones,
what was signed before is still known.

Checkpoints: a signature over how far chains have come.

One names the heads of an owner's chains that went on since the one before, whose hash it holds (`previous`): so an
owner's checkpoints are a chain themselves, and a scope that is named in one cannot vanish. It also holds the hash of
the checkpoint that the gateway made before it, whoever's (`before`), so that no owner can vanish with all theirs.

What is signed is the line `pellucid/checkpoint/1` and the checkpoint as canonical JSON; its hash is SHA-256 over that
JSON and the signature.
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
    """What is signed."""

    owner: str
    number: int
    """Of the owner's checkpoints, from 1."""
    previous: str
    """The hash of the owner's one before; empty: it is the first."""
    serial: int
    """Of the gateway's checkpoints, from 1."""
    before: str
    """The hash of the gateway's one before; empty: it is the first."""
    at: int
    """In milliseconds since 1970."""
    key: str
    """The id of the key that signs."""
    heads: dict[str, tuple[int, str]]
    """How far each chain has come that went on: number and hash (hexadecimal) of its newest entry, by scope."""

    def body(self) -> bytes:
        return canonical_json(msgspec.to_builtins(self))


class SignedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint with its signature."""

    checkpoint: Checkpoint
    signature: bytes

    @property
    def hash(self) -> str:
        return sha256(self.checkpoint.body() + self.signature).hexdigest()

    def is_valid(self, trusted: TrustedKeys) -> bool:
        """Whether its key, which is one of these, signed it."""
        try:
            key = Ed25519PublicKey.from_public_bytes(trusted[self.checkpoint.key])
            key.verify(self.signature, _SIGNATURE_PREFIX + self.checkpoint.body())
        except (InvalidSignature, ValueError):
            return False
        return True


def sign_checkpoint(signer: Signer, checkpoint: Checkpoint) -> SignedCheckpoint:
    return SignedCheckpoint(checkpoint, signer.sign(_SIGNATURE_PREFIX + checkpoint.body()))


def decode_checkpoint(body: bytes) -> Checkpoint | None:
    """The checkpoint that has this body; None if none has exactly this."""
    try:
        checkpoint = msgspec.json.decode(body, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return checkpoint if checkpoint.body() == body else None


class Signer:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._seal_key = sha256(_SEAL_PREFIX + key.private_bytes_raw()).digest()
        self.public = key.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    @classmethod
    def generate(cls) -> Signer:
        return cls(Ed25519PrivateKey.generate())

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def seal(self, owner: str, scope: str, head: ChainHead, signed_number: int) -> bytes:
        """Of a chain that has come so far, and is signed up to there."""
        sealed_fields = [owner, scope, head.number, head.hash.hex(), signed_number]
        return hmac(self._seal_key, canonical_json(sealed_fields), "sha256")

    def pem(self) -> bytes:
        """The key itself: a secret."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        return f"Signer({self.id})"


class TrustedKeys(dict[str, bytes]):
    """Public keys, by their ids."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        super().__init__((key_id(key), key) for key in keys)


def key_id(public: bytes) -> str:
    """By which a checkpoint names the key that signed it."""
    return sha256(public).hexdigest()[:16]


def public_pem(public: bytes) -> str:
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Recording:
    """Whether what is stored is recorded, and whose seals are on it.

    `signers`: the first seals; by the others it is known again what they sealed. None: nothing is sealed."""

    def __init__(self, is_enabled: bool = True, signers: Sequence[Signer] = ()) -> None:
        self.is_enabled = is_enabled
        self.signers = tuple(signers)
        self.unsigned_count = 0
        """So many entries this process wrote since somebody set it to 0: what a checkpoint waits for."""

    def seal(self, owner: str, scope: str, head: ChainHead, signed_number: int) -> bytes | None:
        return self.signers[0].seal(owner, scope, head, signed_number) if self.signers else None

    def is_sealed(self, owner: str, scope: str, head: ChainHead, signed_number: int, seal: bytes | None) -> bool:
        """Whether one of them sealed this. Where there are none, everything is as it should be."""
        if not self.signers:
            return True
        return seal is not None and any(
            compare_digest(signer.seal(owner, scope, head, signed_number), seal) for signer in self.signers
        )


class RecordKeys(NamedTuple):
    """What a key file holds."""

    signers: tuple[Signer, ...]
    """The first signs."""
    trusted: TrustedKeys
    """The public keys of all."""


def find_record_keys(path: Path) -> RecordKeys | None:
    """Those that the environment holds, or else the file, if it is there. Raises `ConfigError`."""
    keys = _keys_from_environment()
    return read_record_keys(path) if keys is None and path.exists() else keys


def ensure_record_keys(path: Path) -> RecordKeys:
    """Those that the environment holds, or else the file, which is made with one new key if it is not there. Raises
    `ConfigError`."""
    if (keys := _keys_from_environment()) is not None:
        return keys
    _FILE.ensure(path, lambda: Signer.generate().pem())
    return read_record_keys(path)


def read_record_keys(path: str | Path) -> RecordKeys:
    """Those in the file. Raises `ConfigError` if it is not there, not right, or readable by others."""
    return _parse_private_keys(_FILE.read(Path(path))[0], str(path))


def read_public_keys(path: Path) -> TrustedKeys:
    """Public keys, from a file that need be no secret. Raises `ConfigError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: the public key cannot be read: {error.strerror}"]) from None
    return TrustedKeys(parse_pem_keys(data, str(path))[1])


def parse_pem_keys(pem: bytes, where: str) -> tuple[list[Signer], list[bytes]]:
    """The private keys in a PEM text, and the public ones of all keys in it. Raises `ConfigError`."""
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

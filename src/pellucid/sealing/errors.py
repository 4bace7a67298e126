"""What can be wrong with a token that came back. Each is the caller's to mend, and says how."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..errors import RequestError

SealCode: TypeAlias = Literal[
    "seal_broken",  # changed, cut, or never a token of ours
    "seal_foreign",  # sealed for somebody else, or for another thread or entity
    "seal_key_unknown",  # sealed with a key that is not among ours
    "seal_key_retired",  # sealed with a key that opens nothing any more
    "seal_too_large",  # longer than is ever read or written
]


class SealError(RequestError):
    """A token that cannot be opened, or an item that cannot be sealed. Nothing of its content is in the message."""

    def __init__(self, code: SealCode, message: str, *, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.code = code

    def at(self, param: str) -> SealError:
        """The same, with the request's field in which the token stood (`input[2].encrypted_content`)."""
        return SealError(self.code, f"{param}: {self.info.message}", param=param)

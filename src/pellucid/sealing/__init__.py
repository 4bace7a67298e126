"""Sealed reasoning: clients can store it and send it back, but cannot read it.

`keys` and `keyfile` hold the keys, `token` turns bytes into tokens, `seal` puts items into tokens. `items` decides what
of an item is sealed, `attach` restores the items that came back. `encrypt` and `decrypt` are for an application's own
text. Only `keyfile` accesses the disk.
"""

from .attach import AttachedHistory, Opener, attach, edited_warnings, make_opener
from .encryption import decrypt, decrypt_text, encrypt
from .items import seal_item
from .keyfile import KeyFile, change_keys, ensure_keys, env_keys, read_keys
from .keys import Key, Keys
from .seal import Sealed, Sealer, TenantSealer
from .token import MAX_TOKEN, SealCode, SealError
from .visible_text import VisibleForms

__all__ = [
    "MAX_TOKEN",
    "AttachedHistory",
    "Key",
    "KeyFile",
    "Keys",
    "Opener",
    "SealCode",
    "SealError",
    "Sealed",
    "Sealer",
    "TenantSealer",
    "VisibleForms",
    "attach",
    "change_keys",
    "decrypt",
    "decrypt_text",
    "edited_warnings",
    "encrypt",
    "ensure_keys",
    "env_keys",
    "make_opener",
    "read_keys",
    "seal_item",
]

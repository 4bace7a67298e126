"""Who may do what: keys, tokens, policies, limits, and web pages of other origins. See `docs/access.md`."""

from .config import OPEN_TO_OTHERS, AccessConfig, CorsConfig, JwtConfig, check_access
from .cors import Cors
from .errors import AccessError, Header, headers_of
from .guard import Guard
from .keys import Hasher, new_key
from .pepper import find_pepper
from .policy import Policy, Principal, visible

__all__ = [
    "OPEN_TO_OTHERS",
    "AccessConfig",
    "AccessError",
    "Cors",
    "CorsConfig",
    "Guard",
    "Hasher",
    "Header",
    "JwtConfig",
    "Policy",
    "Principal",
    "check_access",
    "find_pepper",
    "headers_of",
    "new_key",
    "visible",
]

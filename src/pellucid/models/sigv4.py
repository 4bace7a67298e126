"""Amazon's signature on a request (Signature Version 4), by botocore's own signer.

botocore is the extra `bedrock`, and is imported when something is to be signed. What is signed is what must be sent:
the URL's path to the letter, whose quoted model ids (`:` is `%3A`) are quoted once more in what the signature covers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import RequestError

if TYPE_CHECKING:
    from botocore.credentials import Credentials

SERVICE = "bedrock"
DEFAULT_REGION = "us-east-1"

_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)")


def region_of(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """The region that a request goes to: the host's name has it, or else the environment."""
    match = _HOST.search(urlsplit(url).hostname or "")
    if match:
        return match[1]
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def endpoint_url(region: str) -> str:
    """Where Bedrock's models are in a region."""
    return f"https://bedrock-runtime.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def sign(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    region: str | None = None,
    credentials: Credentials | None = None,
) -> dict[str, str]:
    """The headers with the signature among them. Raises `RequestError` where there is nothing to sign with.

    `credentials` are found as every AWS tool finds them (environment, profile, role), unless they are given.
    """
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
    except ImportError as error:
        raise RequestError(
            "Amazon Bedrock needs either a key in AWS_BEARER_TOKEN_BEDROCK, or a signature: "
            "for that, install pellucid[bedrock]",
            kind="unauthorized",
            code="missing_api_key",
        ) from error
    resolved_credentials = _credentials() if credentials is None else credentials
    # A proxy may change these on the way, and what was signed must arrive as it was.
    signed_headers = {
        name: value for name, value in headers.items() if name.lower() not in ("accept-encoding", "connection")
    }
    request: Any = AWSRequest(method, url, signed_headers, body)
    SigV4Auth(resolved_credentials, SERVICE, region or region_of(url)).add_auth(request)
    return {**headers, **dict(request.headers.items())}


def _credentials() -> Credentials:
    from botocore.exceptions import BotoCoreError

    try:
        credentials = _session().get_credentials()
        # Those of a role expire, and are renewed by asking for them.
        credentials = credentials.get_frozen_credentials() if credentials is not None else None
    except BotoCoreError as error:
        raise RequestError(
            "Amazon Bedrock: the AWS credentials cannot be read",
            kind="unauthorized",
            code="missing_api_key",
            upstream_message=str(error),
        ) from error
    if credentials is None:
        raise RequestError(
            "Amazon Bedrock needs a key in AWS_BEARER_TOKEN_BEDROCK, or AWS credentials (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role); there are none",
            kind="unauthorized",
            code="missing_api_key",
        )
    return credentials


@cache
def _session() -> Any:
    from botocore.session import get_session

    return get_session()

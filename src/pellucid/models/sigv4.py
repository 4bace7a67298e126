"""Sign requests with AWS Signature Version 4, with botocore's signer.

botocore belongs to the extra `bedrock`, and is imported when a request is signed. The request must be sent exactly as
it was signed, including the path. Model ids in the path are quoted (`:` is `%3A`), and the signature covers the path
quoted once more.
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


def default_region() -> str | None:
    """Return the region that the environment names."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def region_of(url: str) -> str:
    """Return the region of a request: from the host's name, else from the environment."""
    match = _HOST.search(urlsplit(url).hostname or "")
    return match[1] if match else default_region() or DEFAULT_REGION


def endpoint_url(region: str) -> str:
    """Return the base URL of Bedrock's models in a region."""
    return f"https://bedrock-runtime.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """Return the headers with the signature added.

    The credentials are from the usual places of AWS tools: the environment, a profile, or a role.

    Args:
        method: HTTP method.
        url: The URL, exactly as it is sent.
        headers: The headers to send.
        body: The body to send.

    Raises:
        RequestError: Botocore is not installed, or there are no credentials.
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
    # Signed headers must arrive unchanged, and a proxy may change these.
    signed_headers = {
        name: value for name, value in headers.items() if name.lower() not in ("accept-encoding", "connection")
    }
    request: Any = AWSRequest(method, url, signed_headers, body)
    SigV4Auth(_credentials(), SERVICE, region_of(url)).add_auth(request)
    return {**headers, **dict(request.headers.items())}


def _credentials() -> Credentials:
    from botocore.exceptions import BotoCoreError

    try:
        credentials = _session().get_credentials()
        # Credentials of a role expire; reading them renews them.
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

"""Requests to Bedrock without an API key: signed as botocore signs them, and sent exactly as signed."""

from __future__ import annotations

import asyncio
import builtins
import datetime
import sys
from typing import Any
from urllib.parse import unquote

import botocore.auth
import botocore.session
import pytest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ModelError, RequestError
from pellucid.models import sigv4
from pellucid.models.bedrock import BedrockConverseModel
from pellucid.parts import ModelRequest, UserPromptPart
from pellucid.settings import ModelCall

NOW = datetime.datetime(2026, 11, 21, 10, 0, 0)
ODD = [
    "us.anthropic.claude-sonnet-4-20250514-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0",
    "arn:aws:bedrock:us-east-1:1:provisioned-model/abc%2Fdef",
    "100%:/~a b+c@d,e;f=g&h$i!j'k(l)m*n",
    "modèle/日本",
]
QUESTION = ModelCall("", [ModelRequest([UserPromptPart("q")])])


@pytest.fixture(autouse=True)
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: NOW)
    sigv4._session.cache_clear()


def boto_request(model: str, **credentials: str) -> Any:
    """Return the request of botocore, intercepted before it is sent."""
    caught: list[Any] = []
    session = botocore.session.Session()
    client = session.create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        config=Config(parameter_validation=False),
        **({"aws_session_token": credentials["token"]} | KEYS if credentials else {}),
    )

    def catch(request: Any, **_: Any) -> Any:
        caught.append(request)
        raise StopIteration

    client.meta.events.register("before-send.bedrock-runtime.*", catch)
    with pytest.raises(BaseException):  # noqa: B017, PT011
        client.converse(modelId=model, messages=[{"role": "user", "content": [{"text": "q"}]}])
    return caught[0]


KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("model", ODD)
def test_url_and_signature_equal_those_of_botocore(model: str) -> None:
    theirs = boto_request(model)
    ours = BedrockConverseModel(model, region="us-east-1").request(ModelCall(model, QUESTION.messages, stream=False))
    assert ours.url == theirs.url
    headers = {"Content-Type": text(theirs.headers["Content-Type"])}
    # botocore also signs tracing headers, which we do not send.
    extra = {n: text(v) for n, v in theirs.headers.items() if n.lower() in _signed(theirs) - {"host", "x-amz-date"}}
    signed = sigv4.sign("POST", ours.url, headers | extra, theirs.body)
    assert signed["Authorization"] == text(theirs.headers["Authorization"])
    assert signed["X-Amz-Date"] == text(theirs.headers["X-Amz-Date"]) == "20261121T100000Z"


def _signed(request: Any) -> set[str]:
    names = text(request.headers["Authorization"]).partition("SignedHeaders=")[2].partition(",")[0]
    return set(names.split(";"))


def test_a_session_token_is_sent_and_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    signed = sigv4.sign("POST", "https://host/x", {"Content-Type": "a/b"}, b"{}")
    assert signed["X-Amz-Security-Token"] == "token"
    assert "content-type;host;x-amz-date;x-amz-security-token" in signed["Authorization"]
    assert signed["Content-Type"] == "a/b"


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.binary())
def test_a_model_id_is_one_path_segment_and_any_change_changes_the_signature(model: str, body: bytes) -> None:
    url = BedrockConverseModel(model, region="eu-west-1").request(ModelCall(model, QUESTION.messages)).url
    start, _, rest = url.partition("/model/")
    segment, _, operation = rest.rpartition("/")
    assert (unquote(segment), operation) == (model, "converse-stream")
    assert "/" not in segment

    def signature(url: str, body: bytes) -> str:
        return sigv4.sign("POST", url, {}, body)["Authorization"]

    assert signature(url, body) == signature(url, body)
    assert len({signature(url, body), signature(url + "x", body), signature(url, body + b" ")}) == 3
    assert "/eu-west-1/bedrock/aws4_request" in signature(url, body)
    assert start == "https://bedrock-runtime.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("url", "environ", "region"),
    [
        ("https://bedrock-runtime.eu-central-1.amazonaws.com/x", {"AWS_REGION": "us-west-2"}, "eu-central-1"),
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com", {}, "us-gov-west-1"),
        ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn", {}, "cn-north-1"),
        ("https://vpce-1.bedrock-runtime.us-east-2.vpce.amazonaws.com", {}, "us-east-1"),
        ("https://proxy/x", {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "x"}, "us-west-2"),
        ("https://proxy/x", {"AWS_DEFAULT_REGION": "us-west-1"}, "us-west-1"),
        ("https://proxy/x", {}, "us-east-1"),
    ],
)
def test_the_region_comes_from_the_url_or_the_environment(
    url: str, environ: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert sigv4.region_of(url) == region


# --- requests on the wire ----------------------------------------------------------------------------------------


class RequestRecorder:
    """A server that records the head of one request."""

    def __init__(self) -> None:
        self.head = b""
        self.body = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(x.split(b":")[1]) for x in self.head.split(b"\r\n") if x.lower().startswith(b"content-length")
        )
        self.body = await reader.readexactly(length)
        writer.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()


def sent(model_id: str, **more: Any) -> tuple[str, dict[str, str], bytes, str]:
    """Return path, headers and body as a server received them, and its address."""

    async def main() -> tuple[RequestRecorder, str]:
        raw = RequestRecorder()
        server = await asyncio.start_server(raw, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            with pytest.raises(ModelError):
                await BedrockConverseModel(model_id, base_url=base, **more).open(QUESTION)
        return raw, base

    raw, base = asyncio.run(main())
    first, *lines = raw.head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return first.split(" ")[1], headers, raw.body, base


@pytest.mark.parametrize("model", ODD)
def test_the_request_received_is_the_one_signed(model: str) -> None:
    path, headers, body, base = sent(model)
    assert path == BedrockConverseModel(model, base_url="").request(ModelCall(model, [])).url.partition(".com")[2]
    again = sigv4.sign("POST", base + path, {"Content-Type": headers["content-type"]}, body)
    assert headers["authorization"] == again["Authorization"]


def test_an_api_key_takes_precedence_over_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent("m", api_key="given")[1]["authorization"] == "Bearer given"
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "found")
    assert sent("m")[1]["authorization"] == "Bearer found"


def test_missing_credentials_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(RequestError, match=r"AWS_BEARER_TOKEN_BEDROCK.*AWS_ACCESS_KEY_ID") as refused:
        asyncio.run(BedrockConverseModel("m").open(QUESTION))
    assert refused.value.info.kind == "unauthorized"


def test_botocore_errors_are_not_part_of_our_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    sigv4._session.cache_clear()
    try:
        with pytest.raises(RequestError, match="nobodys") as refused:
            sigv4._credentials()
    finally:
        sigv4._session.cache_clear()
    assert refused.value.info.message == "Amazon Bedrock: the AWS credentials cannot be read"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RequestError, match=r"pellucid\[bedrock\]"):
        sigv4.sign("POST", "https://host/", {}, b"")


def test_botocore_is_imported_only_to_sign() -> None:
    import subprocess

    code = "import sys, pellucid.models, pellucid.models.bedrock; print('botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

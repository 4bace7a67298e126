"""The test of a connection: a real request to the provider, and its result in words for people.

The request is subject to the egress policy, and follows no redirect. Of the answer, only the names of models and the
message of a provider's error object leave, which is cut and never contains the key. So an address that is no provider
reveals nothing but that it is none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import aclosing
from itertools import islice
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from ..egress import EgressError
from ..errors import ErrorInfo, PellucidError
from ..events import ErrorEvent, ModelEvent, PartStartEvent, ResponseEndEvent
from ..models import ChatModel
from ..models.model import MIN_SECRET_CHARACTERS, Model, StreamReader
from ..parts import ModelRequest, UserPromptPart
from ..providers.profile import Profile
from ..settings import ModelCall
from ..upstream import Limits, UpstreamClient
from ..upstream.hops import LOOP_CODE
from .catalog import MAX_SERVED_MODELS
from .connections import Connection, ConnectionFile, is_model_name

CHECK_SECONDS = 45.0
"""How long a model may take to begin its answer: a local server may have to load it first."""

CONNECT_SECONDS = 8.0
"""How long an address may take to accept a connection, and to send its list of models."""

MAX_DETAIL_CHARACTERS = 200

_QUESTION = "Reply with the word: yes"


class ConnectionProblem(msgspec.Struct):
    """Why a connection does not work, in words for people."""

    code: str
    message: str
    detail: str | UnsetType = UNSET
    """The provider's own message, if it sent an error object."""
    private_addresses: list[str] | UnsetType = UNSET
    """With the code `private_address`: what must be agreed to."""


class CheckedConnection(msgspec.Struct, kw_only=True):
    """The result of a test."""

    ok: bool
    models: list[str]
    """The models that the provider lists."""
    has_list: bool
    """Whether it lists models. If not, a model must be named."""
    base_url: str | UnsetType = UNSET
    """The address that works, if it is another one than the given one."""
    problem: ConnectionProblem | UnsetType = UNSET


def private_address_problem(url: str, addresses: list[str]) -> ConnectionProblem:
    """Return the problem of a connection to whose addresses an operator must agree first.

    Args:
        url: The connection's address.
        addresses: The addresses of its host (`ConnectionFile.addresses_to_agree_to`).
    """
    return ConnectionProblem(
        "private_address",
        f"{urlsplit(url).hostname} is in a network of your own ({', '.join(addresses)}). This gateway connects to it "
        "only if you agree (`private_addresses`).",
        private_addresses=addresses,
    )


async def check_connection(
    connection: Connection, profile: Profile, connections: ConnectionFile, model: str | None
) -> CheckedConnection:
    """Send a request to a provider: for its list of models or, if a model is named, a short question.

    Args:
        connection: The connection, which has been checked (`ConnectionFile.check`).
        profile: Its profile.
        connections: Decides about its address.
        model: The model that gets the question.
    """
    limits = Limits(connect=CONNECT_SECONDS, first_byte=CHECK_SECONDS, idle=CHECK_SECONDS, retries=0)
    client = UpstreamClient(limits, policy=connections.policy_for(connection))
    check = _Check(connection, profile, client, connections.refusal)
    async with aclosing(client):
        if model is not None:
            problem = await check.ask(model)
            return CheckedConnection(ok=problem is None, models=[], has_list=False, problem=problem or UNSET)
        return await check.list_models()


async def begins_to_answer(model: ChatModel, name: str, seconds: float) -> bool:
    """Ask a model a short question, and stop it when it begins to answer.

    Args:
        model: The model.
        name: Its name.
        seconds: How long it may take.

    Returns:
        Whether it did. False: its answer ended without a word.

    Raises:
        PellucidError: The model's error.
        TimeoutError: It took longer.
    """
    call = ModelCall(name, [ModelRequest([UserPromptPart(_QUESTION)])], {"max_tokens": 64})
    async with asyncio.timeout(seconds):
        reader = StreamReader(await model.open(call))
        try:
            while (events := await reader.read()) is not None:
                if (error := _error_of(events)) is not None:
                    raise PellucidError(error)
                if any(isinstance(event, PartStartEvent | ResponseEndEvent) for event in events):
                    return True
        finally:
            reader.cancel()
    return False


class _Check:
    def __init__(
        self,
        connection: Connection,
        profile: Profile,
        client: UpstreamClient,
        refusal: Callable[[EgressError, str], str],
    ) -> None:
        self._refusal = refusal
        self._connection = connection
        self._profile = profile
        self._client = client
        self._url = connection.base_url or profile.base_url

    async def list_models(self) -> CheckedConnection:
        """Return the list of models. An address without a path is also tried with the usual one."""
        urls = [self._url]
        if urlsplit(self._url).path in ("", "/") and self._profile.wire.startswith("openai"):
            urls.append(f"{self._url.rstrip('/')}/v1")
        first_problem: ConnectionProblem | None = None
        for url in urls:
            try:
                listed = [one.name for one in await self._model("", url).served_models()]
            except PellucidError as error:
                if error.info.status not in (404, 405):
                    problem = first_problem or self._problem(error, None)
                    return CheckedConnection(ok=False, models=[], has_list=False, problem=problem)
                continue
            names = list(islice(filter(is_model_name, listed), MAX_SERVED_MODELS))
            if names:
                other = url if url != self._url else UNSET
                return CheckedConnection(ok=True, models=names, has_list=True, base_url=other)
        return CheckedConnection(ok=True, models=[], has_list=False)

    async def ask(self, name: str) -> ConnectionProblem | None:
        """Ask the model a short question, and stop it when it begins to answer. Return what is wrong."""
        try:
            if await begins_to_answer(self._model(name, self._url), name, CHECK_SECONDS):
                return None
        except TimeoutError:
            return ConnectionProblem(
                "timeout",
                f"{self._host} accepted the question, but did not answer within {CHECK_SECONDS:g} seconds. A server "
                "that loads a large model may need longer.",
            )
        except PellucidError as error:
            return self._problem(error, name)
        return ConnectionProblem("no_answer", f"{self._host} ended its answer without a word.")

    def _model(self, name: str, url: str) -> Model:
        return Model(name, self._profile, self._client, base_url=url, api_key=self._connection.api_key)

    @property
    def _host(self) -> str:
        return urlsplit(self._url).netloc

    def _problem(self, error: PellucidError, model: str | None) -> ConnectionProblem:
        """Return an error of the request in words for people."""
        info = error.info
        if isinstance(error, EgressError):
            return ConnectionProblem(info.code or "egress_refused", _sentence(self._refusal(error, self._url)))
        detail = self._detail_of(info)
        status = info.status
        if info.code == LOOP_CODE:
            return ConnectionProblem(
                LOOP_CODE, f"{self._host} leads to this gateway itself. Enter the address of a model server."
            )
        if status in (401, 403) and self._connection.api_key is None:
            return ConnectionProblem(
                "key_missing", f"{self._profile.title} needs a key. Enter it, and test again.", detail
            )
        if status in (401, 403):
            return ConnectionProblem(
                "key_refused", f"{self._host} refused the key. Check that it is complete and valid.", detail
            )
        if status == 402 or info.code == "insufficient_quota":
            return ConnectionProblem(
                "no_credit", f"The key works, but its account at {self._host} has no credit left.", detail
            )
        if status == 429:
            return ConnectionProblem(
                "too_many_requests", f"{self._host} takes no more requests from this key for now.", detail
            )
        if info.kind == "not_found":
            has_path = bool(urlsplit(self._url).path.strip("/"))
            hint = "" if has_path else " The address may need a path at its end, such as /v1."
            return ConnectionProblem("model_unknown", f"{self._host} does not know the model {model!r}.{hint}", detail)
        if info.code == "unreachable" and _is_unknown_host(error):
            return ConnectionProblem(
                "host_not_found", f"{self._host} was not found. Check the spelling and your network."
            )
        if info.code == "unreachable":
            reason = info.message.rpartition(": ")[2]
            return ConnectionProblem(
                "unreachable", f"{self._host} cannot be reached: {reason}. Is the server running there?"
            )
        if info.kind == "timeout":
            return ConnectionProblem("timeout", f"{self._host} did not answer in time.")
        if status is not None and status >= 500:
            return ConnectionProblem(
                "provider_failed", f"{self._host} has a fault of its own (status {status}).", detail
            )
        if info.code in ("redirect", "not_an_answer", "not_http"):
            return ConnectionProblem("no_provider", f"What answers at {self._host} is not a model server of this kind.")
        if status is not None and status >= 400:
            return ConnectionProblem("refused", f"{self._host} refused the question (status {status}).", detail)
        return ConnectionProblem(
            "no_provider", f"The answer of {self._host} is not that of a model server of this kind.", detail
        )

    def _detail_of(self, info: ErrorInfo) -> str | UnsetType:
        """Return the provider's own message: only of an error object, in one line, and without the key."""
        text, key = info.upstream_message, self._connection.api_key
        if text is None or not isinstance(info.native, dict | list):
            return UNSET
        if key is not None and len(key) >= MIN_SECRET_CHARACTERS:
            text = text.replace(key, "[key]")
        text = " ".join(text.split())
        return text if len(text) <= MAX_DETAIL_CHARACTERS else f"{text[: MAX_DETAIL_CHARACTERS - 1]}…"


def _error_of(events: Iterable[ModelEvent]) -> ErrorInfo | None:
    return next((event.error for event in events if isinstance(event, ErrorEvent)), None)


def _is_unknown_host(error: PellucidError) -> bool:
    cause = error.__cause__
    return isinstance(getattr(cause, "os_error", cause), socket.gaierror)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "]")) else ".")

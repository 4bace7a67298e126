"""The tools and resources with which an MCP client takes part in a space, as one participant (see `mcp_server`).

The rules:

* The tools have no state between calls: every position and context is an argument, and every result names the next one.
  So it does not matter which process serves a call.
* The space decides what the participant may do. If it refuses an envelope, the tool fails with the space's message.
* A result is bounded (`MAX_RESULT_BYTES`), and says where the rest is.
* `wait` returns what concerns the participant (`_Concerns`), or nothing after its time. It reports progress meanwhile,
  because clients end a call of which they hear nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...envelopes import context as paths
from ...envelopes import kinds, mcp
from ...envelopes.capability import call_capability
from ...envelopes.envelope import Envelope, Flag
from ...envelopes.translate import time_text
from ...errors import RequestError
from ...unicode import describe_validation_error, json_safe
from ..client.participant import Participant, fulfilment
from ..client.remote import RemotePage

MAX_RESULT_BYTES = 100_000
"""Maximum size of the envelopes in one result."""
MAX_ENVELOPE_BYTES = 16_000
"""Maximum size of an envelope in a result. Of a larger one there is the beginning of its text."""
MAX_ENVELOPES = 200
DEFAULT_ENVELOPES = 50

MAX_WAIT_SECONDS = 300.0
DEFAULT_WAIT_SECONDS = 45.0
"""Less than the time limit that clients have by default for a call (60 s)."""
PROGRESS_SECONDS = 10.0

_SCAN_PAGE = 500
_OWN_IDS = 500
"""Of how many own envelopes `wait` knows that others answer them."""

# --- arguments and results -------------------------------------------------------------------------------------------


class _Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


_Id = Annotated[str, Meta(min_length=1, max_length=255)]
_Seq = Annotated[int, Meta(ge=0, le=2**53)]
_To = Annotated[
    tuple[_Id, ...],
    Meta(
        description="Ids of the participants that it is for. Left out: everyone, or the audience of its context.",
        max_length=256,
    ),
]
_Answers = Annotated[
    tuple[_Id, ...], Meta(description="Ids (`id`, not `seq`) of the envelopes that it answers.", max_length=256)
]
_Context = Annotated[str, Meta(description="Path of the context of reasoning to which it belongs.", min_length=1)]


class ReadArguments(_Arguments):
    """Arguments of `read`."""

    after_seq: (
        Annotated[
            _Seq, Meta(description="Only envelopes after this number, the oldest first: the last next_after_seq.")
        ]
        | UnsetType
    ) = UNSET
    before_seq: Annotated[_Seq, Meta(description="Only envelopes before this number.")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_ENVELOPES, description="Maximum number of envelopes.")] = DEFAULT_ENVELOPES
    context: (
        Annotated[str, Meta(description="Only envelopes in this context of reasoning, and those inside it.")]
        | UnsetType
    ) = UNSET
    kinds: Annotated[
        tuple[str, ...], Meta(description="Only these kinds, such as `chat`, `reasoning/*`, `mcp/proposal`.")
    ] = ()


class SayArguments(_Arguments):
    """Arguments of `say`."""

    text: Annotated[str, Meta(min_length=1, description="What to say, as Markdown or plain text.")]
    to: _To = ()
    answers: _Answers = ()
    context: _Context | UnsetType = UNSET


_Step = Literal["start", "thought", "question", "observation", "hypothesis", "conclusion", "cancel", "share"]


class ThinkArguments(_Arguments):
    """Arguments of `think`."""

    step: Annotated[
        _Step,
        Meta(
            description="`start` opens a context; `thought`, `question`, `observation` and `hypothesis` belong to one; "
            "`conclusion` ends it; `cancel` ends it without a conclusion; `share` adds the participants in `to` to "
            "the audience of a context."
        ),
    ]
    text: Annotated[str, Meta(description="The text of the step; of a cancel or share, its reason.")]
    context: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="The context, as the result of its start named it. For a start: the context inside which "
                "the new one is opened; left out, it is an outermost one.",
            ),
        ]
        | UnsetType
    ) = UNSET
    to: Annotated[
        tuple[_Id, ...],
        Meta(
            max_length=256,
            description="For a start: the audience, to which alone everything in the context is shown; left out: "
            "everyone. For a share: who is added.",
        ),
    ] = ()
    answers: _Answers = ()
    confidence: Annotated[float, Meta(ge=0, le=1, description="How sure you are, from 0 to 1.")] | UnsetType = UNSET


class ProposeArguments(_Arguments):
    """Arguments of `propose`."""

    tool: Annotated[str, Meta(min_length=1, description="The tool of another participant.")]
    arguments: Annotated[dict[str, Any], Meta(description="The arguments of the call.")] = {}
    to: _To = ()
    answers: _Answers = ()
    context: _Context | UnsetType = UNSET


_Action = Literal["respond", "fulfil", "reject", "withdraw", "grant", "accept"]


class AnswerArguments(_Arguments):
    """Arguments of `answer`."""

    seq: Annotated[int, Meta(ge=1, le=2**53, description="The `seq` of the request, proposal or grant.")]
    action: Annotated[
        _Action,
        Meta(
            description="`respond`: respond to an mcp/request with `result` or `error`. `fulfil`: make the call that "
            "an mcp/proposal proposes; its response comes with `wait`. `reject`: reject a proposal. `withdraw`: "
            "withdraw your own proposal. `grant`: give the proposer the right to make this call. `accept`: accept a "
            "capability/grant."
        ),
    ]
    result: Annotated[Any, Meta(description="respond: the result of the tool, as text or JSON.")] = UNSET
    error: Annotated[str, Meta(description="respond: why it failed, instead of `result`.")] | UnsetType = UNSET
    reason: Annotated[str, Meta(description="reject, withdraw, grant: the reason.")] | UnsetType = UNSET
    to: Annotated[tuple[_Id, ...], Meta(max_length=256, description="fulfil: whose tool is called.")] = ()


class WaitArguments(_Arguments):
    """Arguments of `wait`."""

    after_seq: Annotated[_Seq, Meta(description="The `next_after_seq` of the last `read` or `wait`.")]
    concerning: Annotated[
        Literal["me", "everyone"], Meta(description="`me`: what concerns you; `everyone`: everything from others.")
    ] = "me"
    timeout_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="The maximum time to wait.")] = (
        DEFAULT_WAIT_SECONDS
    )


class ShownEnvelope(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An envelope in a result."""

    seq: int
    id: str
    ts: str
    sender: str = msgspec.field(name="from")
    kind: str
    to: tuple[str, ...] = ()
    audience: Annotated[tuple[str, ...], Meta(description="Who may read it, if it names no recipients.")] = ()
    correlation_id: Annotated[tuple[str, ...], Meta(description="Ids of the envelopes that it answers.")] = ()
    context: str | UnsetType = UNSET
    payload: dict[str, Any] = {}
    flags: Annotated[tuple[Flag, ...], Meta(description="Problems that the space has seen in it.")] = ()
    truncated: Annotated[
        bool, Meta(description="The payload is too large: `text` is the beginning. The whole is the resource.")
    ] = False
    resource: Annotated[str, Meta(description="URI of the whole envelope, if it is truncated.")] | UnsetType = UNSET


class ReadResult(msgspec.Struct, kw_only=True):
    """Result of `read`."""

    space: str
    you: Annotated[str, Meta(description="Your id.")]
    participants: Annotated[list[str], Meta(description="Ids of the others who are present.")]
    envelopes: list[ShownEnvelope]
    next_after_seq: Annotated[int, Meta(description="`after_seq` for the next `read` or `wait`.")]
    has_more: Annotated[
        bool,
        Meta(description="Whether there are more: with after_seq later ones, otherwise earlier ones (before_seq)."),
    ]


class WaitResult(msgspec.Struct, kw_only=True):
    """Result of `wait`."""

    envelopes: list[ShownEnvelope]
    next_after_seq: Annotated[int, Meta(description="`after_seq` for the next `wait`.")]
    timed_out: Annotated[bool, Meta(description="Whether nothing came in time: call `wait` again.")]


class Sent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Result of the tools that send: the envelope is stored."""

    seq: int
    id: Annotated[str, Meta(description="For `answers` of other envelopes.")]
    context: (
        Annotated[str, Meta(description="Of a `start`: the context that it opened; use it in later steps.")] | UnsetType
    ) = UNSET
    flags: Annotated[tuple[Flag, ...], Meta(description="Problems with which the space accepted it.")] = ()


# --- what concerns a participant -------------------------------------------------------------------------------------


class _Concerns:
    """Decides whether an envelope of another participant concerns this one.

    It does if it is addressed to it, mentions it (`@id`), answers one of its envelopes, ends one of its contexts,
    grants it something, or proposes to everyone a call that it may make. Requests for lists (`tools/list` …) do not:
    they are for programs.
    """

    def __init__(self, me: Participant, own_ids: set[str]) -> None:
        self._me = me
        self._own_ids = own_ids
        self._mention = re.compile(rf"(?<![\w@]){re.escape('@' + me.id)}(?![\w-])", re.IGNORECASE)

    def __call__(self, envelope: Envelope) -> bool:
        me = self._me
        if envelope.sender == me.id:
            self._own_ids.add(envelope.id)
            return False
        payload = envelope.payload
        method = payload.get("method")
        if envelope.kind == kinds.REQUEST and isinstance(method, str) and method.endswith("/list"):
            return False
        if me.id in envelope.to or not self._own_ids.isdisjoint(envelope.correlation_id):
            return True
        match envelope.kind:
            case kinds.CHAT:
                return self._mention.search(kinds.text_of(envelope)) is not None
            case kinds.CANCEL | kinds.CONCLUSION:
                return not self._own_ids.isdisjoint(paths.segments(envelope.context or ""))
            case kinds.GRANT | kinds.REVOKE:
                return payload.get("recipient") == me.id
            case kinds.PROPOSAL:
                return not envelope.to and me.may(kinds.REQUEST, payload)
        return False


class ResourceRow(NamedTuple):
    """A resource, or a template of resources."""

    name: str
    uri: str
    """The URI under that of the space (RFC 6570 for a template)."""
    title: str
    description: str

    @property
    def is_template(self) -> bool:
        """Whether the URI has variables."""
        return "{" in self.uri


RESOURCES = (
    ResourceRow("envelopes", "envelopes", "The newest envelopes", "The newest envelopes that you may read."),
    ResourceRow("contexts", "contexts", "Contexts of reasoning", "The newest contexts of reasoning, one line each."),
    ResourceRow(
        "envelope-page",
        "envelopes{?after_seq,before_seq,limit}",
        "A page of the log",
        "Envelopes between two numbers. The next page has the `next_after_seq` of this one as `after_seq`.",
    ),
    ResourceRow("envelope", "envelopes/{seq}", "One envelope", "One envelope, whole."),
    ResourceRow(
        "context",
        "contexts/{+path}",
        "A context of reasoning",
        "A context as a tree: its trigger, its thoughts, the contexts inside it, and its results.",
    ),
)


# --- the tools -------------------------------------------------------------------------------------------------------

ReportProgress: TypeAlias = Callable[[float, float, str], Awaitable[None]]
"""Reports the progress of a call: how much is done, the total, and a message."""


class SpaceTools:
    """The tools and resources of one participant."""

    def __init__(self, participant: Participant) -> None:
        self._me = participant
        self._prefix = f"space://{quote(participant.space, safe='')}"

    # --- tools

    async def read(self, args: ReadArguments, progress: ReportProgress) -> ReadResult:
        """Read envelopes."""
        me = self._me
        after = None if args.after_seq is UNSET else args.after_seq
        before = None if args.before_seq is UNSET else args.before_seq
        page = await self._page(
            after,
            before,
            args.limit,
            newest=after is None,
            context=None if args.context is UNSET else args.context,
            kind=",".join(args.kinds) or None,
        )
        shown, next_after, is_cut = self._show(page.envelopes, page.reached, newest=after is None)
        return ReadResult(
            space=me.space,
            you=me.id,
            participants=sorted(me.participants),
            envelopes=shown,
            next_after_seq=next_after,
            has_more=page.has_more or is_cut,
        )

    async def say(self, args: SayArguments, progress: ReportProgress) -> Sent:
        """Send a chat."""
        return _sent(await self._me.say(args.text, to=args.to, answers=args.answers, context=_path(args.context)))

    async def think(self, args: ThinkArguments, progress: ReportProgress) -> Sent:
        """Send a step of reasoning."""
        kind, context = f"reasoning/{args.step}", _path(args.context)
        if context is None and args.step != "start":
            raise RequestError(
                "context: name the context that a `start` opened, as its result has it",
                code="missing",
                param="context",
            )
        payload: dict[str, Any] = {kinds.kind_of(kind).input_field: args.text}
        if args.step == "share":
            payload = {"participants": list(args.to), "reason": args.text}
        if args.confidence is not UNSET:
            payload["confidence"] = args.confidence
        to = args.to if args.step != "share" else ()
        stored = await self._me.send(kind, payload, to=to, answers=args.answers, context=context)
        sent = _sent(stored)
        if args.step == "start":
            sent.context = paths.child(context, stored.id)
        return sent

    async def propose(self, args: ProposeArguments, progress: ReportProgress) -> Sent:
        """Propose a tool call."""
        stored = await self._me.propose(
            mcp.CALL_TOOL,
            mcp.call_params(args.tool, args.arguments),
            to=args.to,
            answers=args.answers,
            context=_path(args.context),
        )
        return _sent(stored)

    async def answer(self, args: AnswerArguments, progress: ReportProgress) -> Sent:
        """Answer a request, a proposal or a grant."""
        me, envelope = self._me, await self._envelope(args.seq)
        expected = _ANSWERED_KINDS[args.action]
        if envelope.kind != expected:
            raise RequestError(
                f"seq: envelope {args.seq} is of the kind {envelope.kind}; `{args.action}` is for {expected}",
                code="wrong_kind",
                param="seq",
            )
        reason = None if args.reason is UNSET else args.reason
        match args.action:
            case "respond":
                return _sent(await self._respond(envelope, args))
            case "fulfil":
                return _sent(await me.send_request(**fulfilment(envelope, args.to)))
            case "reject":
                return _sent(await me.reject(envelope, reason))
            case "withdraw":
                return _sent(await me.withdraw(envelope, reason))
            case "grant":
                return _sent(await self._grant(envelope, reason))
            case "accept":
                return _sent(await me.send(kinds.GRANT_ACK, {"status": "accepted"}, answers=envelope))

    async def _respond(self, request: Envelope, args: AnswerArguments) -> Envelope:
        if (args.result is UNSET) == (args.error is UNSET):
            raise RequestError("result: give `result` or `error`, and only one of them", code="missing", param="result")
        if args.error is not UNSET:
            return await self._me.respond(request, error={"code": _TOOL_FAILED, "message": args.error})
        is_call = mcp.tool_of(request) is not None
        return await self._me.respond(request, mcp.tool_result(args.result) if is_call else args.result)

    async def _grant(self, proposal: Envelope, reason: str | None) -> Envelope:
        payload = {
            "recipient": proposal.sender,
            "capabilities": [call_capability(proposal)],
            **({} if reason is None else {"reason": reason}),
        }
        return await self._me.send(kinds.GRANT, payload, answers=proposal)

    async def wait(self, args: WaitArguments, progress: ReportProgress) -> WaitResult:
        """Wait for envelopes that concern the participant."""
        me, loop = self._me, asyncio.get_running_loop()
        begun = loop.time()
        scanned = args.after_seq
        concerns = _Concerns(me, await self._own_ids())

        def matches(envelope: Envelope) -> bool:
            concerns_me = concerns(envelope)
            return concerns_me if args.concerning == "me" else envelope.sender != me.id

        def matches_live(envelope: Envelope) -> bool:
            nonlocal scanned
            if not envelope.seq:
                return False
            if matches(envelope):
                return True
            if not arrival.done() and is_scanned:
                scanned = max(scanned, envelope.seq)
            return False

        while True:
            is_scanned = False
            async with me.awaiting(matches_live) as arrival:
                while True:
                    page = await self._page(scanned, None, _SCAN_PAGE)
                    matching = [envelope for envelope in page.envelopes if matches(envelope)]
                    if matching:
                        shown, next_after, _ = self._show(matching[:MAX_ENVELOPES], page.reached)
                        if len(matching) > MAX_ENVELOPES:
                            next_after = shown[-1].seq
                        return WaitResult(envelopes=shown, next_after_seq=next_after, timed_out=False)
                    scanned = page.reached
                    if not page.has_more:
                        break
                    if loop.time() - begun > args.timeout_seconds:
                        return WaitResult(envelopes=[], next_after_seq=scanned, timed_out=True)
                is_scanned = True
                while not arrival.done():
                    elapsed = loop.time() - begun
                    remaining = args.timeout_seconds - elapsed
                    if remaining <= 0:
                        return WaitResult(envelopes=[], next_after_seq=scanned, timed_out=True)
                    await asyncio.wait([arrival], timeout=min(remaining, PROGRESS_SECONDS))
                    if not arrival.done():
                        await progress(loop.time() - begun, args.timeout_seconds, "waiting for the space")
                arrival.result()

    # --- resources

    def resources(self) -> list[ResourceRow]:
        """Return the resources, with their whole URIs."""
        return [row._replace(uri=f"{self._prefix}/{row.uri}") for row in RESOURCES]

    async def read_resource(self, uri: str) -> bytes:
        """Return the JSON of a resource.

        Raises:
            PellucidError: If there is no such resource, or it cannot be read.
        """
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise _no_resource(uri) from None
        query = dict(parse_qsl(parts.query))
        collection, _, rest = parts.path.removeprefix("/").partition("/")
        if parts.scheme != "space" or unquote(parts.netloc) != self._me.space:
            raise _no_resource(uri)
        if collection == "envelopes" and not rest:
            args = convert_arguments(ReadArguments, query, strict=False)
            return msgspec.json.encode(await self.read(args, _no_progress))
        if collection == "envelopes" and rest.isascii() and rest.isdecimal() and len(rest) < 16:
            return msgspec.json.encode(self._shown(await self._envelope(int(rest))))
        if collection == "contexts":
            view, history = self._me.view, self._me.history
            path = paths.parse(unquote(rest)) if rest else None
            return msgspec.json.encode(
                await history.contexts(view=view) if path is None else await history.context(path, view=view)
            )
        raise _no_resource(uri)

    # --- help

    async def _page(
        self, after: int | None, before: int | None, limit: int, *, newest: bool = False, **more: str | None
    ) -> RemotePage:
        page = await self._me.history.page(
            after_seq=after, before_seq=before, limit=limit, newest=newest, view=self._me.view, **more
        )
        # A position after the newest envelope is that of the newest: nothing that comes later is missed.
        return msgspec.structs.replace(page, reached=min(page.reached, page.head))

    async def _envelope(self, seq: int) -> Envelope:
        """Return one envelope. Raises `RequestError` if the participant cannot see it."""
        page = await self._page(seq - 1, seq + 1, 1)
        if not page.envelopes:
            raise RequestError(
                f"there is no envelope {seq} here that you may read", kind="not_found", code="envelope_not_found"
            )
        return page.envelopes[0]

    async def _own_ids(self) -> set[str]:
        page = await self._page(None, None, _OWN_IDS, newest=True, **{"from": self._me.id})
        return {envelope.id for envelope in page.envelopes}

    def _show(
        self, envelopes: Sequence[Envelope], reached: int, *, newest: bool = False
    ) -> tuple[list[ShownEnvelope], int, bool]:
        """Return envelopes for a result, the position after them, and whether some were left out."""
        shown: list[ShownEnvelope] = []
        size = 0
        for envelope in reversed(envelopes) if newest else envelopes:
            one = self._brief(envelope)
            size += len(msgspec.json.encode(one))
            if shown and size > MAX_RESULT_BYTES:
                break
            shown.append(one)
        is_cut = len(shown) < len(envelopes)
        if newest:
            shown.reverse()
        return shown, shown[-1].seq if is_cut and not newest else reached, is_cut

    def _shown(self, envelope: Envelope) -> ShownEnvelope:
        return ShownEnvelope(
            seq=envelope.seq,
            id=envelope.id,
            ts=time_text(envelope.ts),
            sender=envelope.sender,
            kind=envelope.kind,
            to=envelope.to,
            audience=envelope.audience,
            correlation_id=envelope.correlation_id,
            context=envelope.context or UNSET,
            payload=envelope.payload,
            flags=envelope.flags,
        )

    def _brief(self, envelope: Envelope) -> ShownEnvelope:
        """Return an envelope without most of a large payload."""
        shown = self._shown(envelope)
        if len(msgspec.json.encode(envelope.payload)) > MAX_ENVELOPE_BYTES:
            shown.payload = {"text": kinds.text_of(envelope)[: MAX_ENVELOPE_BYTES // 4]}
            shown.truncated, shown.resource = True, f"{self._prefix}/envelopes/{envelope.seq}"
        return shown


_ANSWERED_KINDS: Mapping[_Action, str] = {
    "respond": kinds.REQUEST,
    "fulfil": kinds.PROPOSAL,
    "reject": kinds.PROPOSAL,
    "withdraw": kinds.PROPOSAL,
    "grant": kinds.PROPOSAL,
    "accept": kinds.GRANT,
}
"""The kind of envelope to which each action is an answer."""

_TOOL_FAILED = -32000


def _path(context: str | UnsetType) -> str | None:
    return None if context is UNSET else context


def _sent(stored: Envelope) -> Sent:
    return Sent(seq=stored.seq, id=stored.id, flags=stored.flags)


def _no_resource(uri: str) -> RequestError:
    return RequestError(f"there is no resource {uri[:200]!r}", kind="not_found", code="resource_not_found", param="uri")


async def _no_progress(done: float, total: float, message: str) -> None:
    pass


class ToolRow(NamedTuple):
    """A tool."""

    title: str
    description: str
    arguments: type[_Arguments]
    result: type[msgspec.Struct]
    call: Callable[[SpaceTools, Any, ReportProgress], Awaitable[msgspec.Struct]]
    is_read_only: bool = False
    is_destructive: bool = False
    """Whether others may do something because of it that cannot be undone."""


TOOLS: Mapping[str, ToolRow] = {
    "read": ToolRow(
        "Read the space",
        "Read the space's log: who you are, who is present, and the newest envelopes (or those after `after_seq`). "
        "Begin with it. It does not wait.",
        ReadArguments,
        ReadResult,
        SpaceTools.read,
        is_read_only=True,
    ),
    "say": ToolRow(
        "Say something",
        "Send a chat message to everyone, or to the participants in `to` alone.",
        SayArguments,
        Sent,
        SpaceTools.say,
    ),
    "think": ToolRow(
        "Reason in the open",
        "Make your reasoning visible to others. First `start`, with what you think about: the result names the "
        "`context` that it opened. Then thoughts in this context, and at the end a `conclusion`. What is for "
        "everyone's attention is said with `say`.",
        ThinkArguments,
        Sent,
        SpaceTools.think,
    ),
    "propose": ToolRow(
        "Propose a tool call",
        "Propose a call of another participant's tool, for somebody who may make it. It is not made by this. What "
        "becomes of it (a rejection, or the request and its response) comes with `wait`.",
        ProposeArguments,
        Sent,
        SpaceTools.propose,
    ),
    "answer": ToolRow(
        "Answer a request or proposal",
        "Answer an mcp/request, an mcp/proposal or a capability/grant, named by its `seq`.",
        AnswerArguments,
        Sent,
        SpaceTools.answer,
        is_destructive=True,
    ),
    "wait": ToolRow(
        "Wait for others",
        "Wait until something concerns you: a message or request to you, a mention (@you), an answer to what you "
        "sent, a proposal that you may fulfil. Returns at once if there is something after `after_seq` already.",
        WaitArguments,
        WaitResult,
        SpaceTools.wait,
        is_read_only=True,
    ),
}


def convert_arguments(type_: type[msgspec.Struct], arguments: Mapping[str, Any], *, strict: bool = True) -> Any:
    """Return the arguments as a struct. Models often write null for what they leave out, and sometimes half an emoji.

    Raises:
        RequestError: If they are not valid.
    """
    arguments_set = json_safe({name: value for name, value in arguments.items() if value is not None})
    try:
        return msgspec.convert(arguments_set, type_, strict=strict)
    except msgspec.ValidationError as error:
        problem, location = describe_validation_error(str(error))
        name = location.removeprefix("$.").removeprefix("$")
        raise RequestError(f"{name}: {problem}" if name else problem, code="invalid_arguments", param=name) from None

"""The rules that a sequence of AG-UI events keeps, by name: what each says, and where it is from."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["fatal", "silent", "style"]
Breach = tuple[str, Severity, str]
"""The rule's name, how grave it is here, and what is wrong."""


class Rule(NamedTuple):
    told: str
    source: str


_CLIENT = "@ag-ui/client 1.0.0"

RULES: dict[str, Rule] = {
    "event": Rule("an event is a JSON object with a type", f"{_CLIENT}, transform/http.ts"),
    "type": Rule("the dialect has events of this type", f"{_CLIENT}, enforce.ts; older: the schema of @ag-ui/core"),
    "fields": Rule("an event has the fields that its type needs, of the right kind, and no nulls", "schema.json 1.0"),
    "unknown": Rule("it has no others: they are removed on the way", f"{_CLIENT}, enforce/strip.ts"),
    "retired": Rule("no shape that clients translate for now", f"{_CLIENT}, middleware/compatibility-boundary.ts"),
    "start": Rule("a run begins with RUN_STARTED, and not while another runs", f"{_CLIENT}, verify.ts"),
    "terminal": Rule("after the end of a run comes at most the next", f"{_CLIENT}, verify.ts"),
    "truncated": Rule("a run ends with RUN_FINISHED or RUN_ERROR", "AG-UI's conformance streams"),
    "version": Rule("the version that RUN_STARTED says it speaks is one that clients know", f"{_CLIENT}, agent.ts"),
    "run": Rule("RUN_FINISHED names its own run and thread; a stream is one thread", "AG-UI's conformance streams"),
    "reopened": Rule("what is open is not started again", f"{_CLIENT}, verify.ts"),
    "unopened": Rule("only what is open goes on or ends", f"{_CLIENT}, verify.ts"),
    "unclosed": Rule("nothing is open when the run finishes", f"{_CLIENT}, verify.ts"),
    "owner": Rule("a subagentRunId is that of whoever started it", f"{_CLIENT}, verify.ts"),
    "subagent": Rule("a subagent starts once, after its parent, and ends once", f"{_CLIENT}, verify.ts"),
    "chunk": Rule(
        "the first chunk of something has its id (and a call's name), later ones agree", "chunks/transform.ts"
    ),
    "ids": Rule(
        "no two messages or calls of a thread have one id: they would be merged", f"{_CLIENT}, apply/default.ts"
    ),
    "anchor": Rule("an encrypted value comes after what it belongs to was started", f"{_CLIENT}, apply/default.ts"),
    "value": Rule("a message or call gets one encrypted value: a second replaces it", f"{_CLIENT}, apply/default.ts"),
    "snapshot": Rule(
        "a MESSAGES_SNAPSHOT with any reasoning has all of it, and every encrypted value again",
        f"{_CLIENT}, apply/default.ts",
    ),
    "interrupt": Rule("no two interrupts have one id", "AG-UI's conformance streams"),
    "activity": Rule("ACTIVITY_DELTA is of an activity that there is", f"{_CLIENT}, apply/default.ts"),
    "empty": Rule("no delta is empty", "the proposal; @ag-ui/core 0.0.45"),
    "order": Rule("reasoning ends as message, encrypted value, span, and then comes something else", "this package"),
}

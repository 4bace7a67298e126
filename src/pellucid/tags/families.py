"""Marker families as data: the strings that open and close a model's reasoning, one row per family.

A row has values only. The splitter defines what they mean:

* Markers are literal strings, matched exactly: no case folding, no attributes, no spaces inside.
* White space around a marker is never part of the marker; the splitter strips and keeps it.
* A marker is complete as soon as its last character is read: where one is a prefix of another, the
  shorter wins.
* Only strings named in `answer_starts`, `structural` or `trailers` are dropped from the answer, and closing
  markers that have nothing to close.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

ImplicitStart = Literal["never", "always", "auto"]
"""Where generation begins by default.

`never`: outside reasoning; the opening marker must come. `always`: inside, because the template wrote the
marker or the model leaves it out. `auto`: unknown; the text is held back until a marker decides.
"""

Position = Literal["start", "anywhere"]
"""Where an opening marker counts: only at the start of the output, or anywhere outside code."""

WHITESPACE = " \t\r\n"
"""Characters that are stripped around markers. Other Unicode spaces are content."""


class Pair(msgspec.Struct, frozen=True):
    """Markers that belong together: reasoning opened by any of `starts` ends at any of `ends`."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One way of marking reasoning in text.

    Attributes:
        name: The family's name.
        pairs: The opening and closing markers.
        implicit_start: Where generation begins.
        position: Where an opening marker counts.
        breaks: Tool markers that end reasoning without a closing marker at the start of a line. They stay in the
            answer.
        special_breaks: The same anywhere, because prose does not contain these tokens.
        answer_starts: Dropped where the answer begins.
        structural: Dropped anywhere in the answer.
        trailers: Dropped where reasoning or answer ends (end-of-sequence tokens, closing wrappers).

    Raises:
        ValueError: A marker is empty, or has white space where the splitter would strip it.
    """

    name: str
    pairs: tuple[Pair, ...]
    implicit_start: ImplicitStart = "never"
    position: Position = "start"
    breaks: tuple[str, ...] = ()
    special_breaks: tuple[str, ...] = ()
    answer_starts: tuple[str, ...] = ()
    structural: tuple[str, ...] = ()
    trailers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.pairs or not all(pair.starts and pair.ends for pair in self.pairs):
            raise ValueError(f"marker family {self.name!r} needs at least one start and one end marker")
        stripped = (*self.starts, *self.ends, *self.breaks, *self.special_breaks)
        for marker in (*stripped, *self.answer_starts, *self.structural):
            if not marker or marker != marker.strip(WHITESPACE):
                raise ValueError(f"marker {marker!r} of family {self.name!r} is empty or has white space at its ends")
        if not all(marker.strip(WHITESPACE) for marker in self.trailers):
            raise ValueError(f"a trailer of marker family {self.name!r} is blank")

    @property
    def starts(self) -> tuple[str, ...]:
        """Every opening marker, in the order of the pairs."""
        return tuple(marker for pair in self.pairs for marker in pair.starts)

    @property
    def ends(self) -> tuple[str, ...]:
        """Every closing marker, in the order of the pairs."""
        return tuple(marker for pair in self.pairs for marker in pair.ends)


def _pair(start: str, end: str) -> Pair:
    return Pair((start,), (end,))


_THINK = (_pair("<think>", "</think>"),)

# End-of-sequence tokens that servers leak into text. `</s>` is not listed because it is also HTML.
_EOS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<｜end▁of▁sentence｜>")


def custom(start: str, end: str) -> Family:
    """Return a family with one configured pair, such as the profile field `tags = ['<reflect>', '</reflect>']`.

    White space at the ends of the markers is ignored, because the splitter strips it around every marker.

    Raises:
        ValueError: A marker is blank.
    """
    return Family(name="custom", pairs=(_pair(start.strip(WHITESPACE), end.strip(WHITESPACE)),))


_ROWS = (
    # The default everywhere. Hybrid models begin outside or inside, by their template: see `Profile.implicit_start`.
    Family(name="think", pairs=_THINK, trailers=_EOS),
    # Generation begins inside: DeepSeek-R1 (R1-0528 still writes the marker), QwQ, MiniMax-M2, Step3.
    Family(name="think-forced", pairs=_THINK, implicit_start="always", trailers=_EOS),
    # Inside when the request asks for thinking: DeepSeek-V3.1 and later, Holo2.
    Family(name="think-explicit", pairs=_THINK, implicit_start="always", trailers=_EOS),
    # A tool call also ends reasoning: Qwen3.5, GLM, Nemotron, Granite, Hunyuan, Kimi-K2.
    Family(
        name="think+tool-close",
        pairs=_THINK,
        implicit_start="always",
        breaks=("<tool_call>", "<tool_calls>", "<ifm|tool_call"),
        special_breaks=("<|tool_calls_section_begin|>",),
        trailers=_EOS,
    ),
    Family(name="kimi-vl", pairs=(_pair("◁think▷", "◁/think▷"),), trailers=_EOS),
    Family(
        name="kimi-k3",
        pairs=(_pair("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
        implicit_start="always",
        special_breaks=("<|open|>tools<|sep|>",),
        structural=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        trailers=("<|end_of_msg|>", *_EOS),
    ),
    Family(name="mistral", pairs=(_pair("[THINK]", "[/THINK]"),)),
    Family(name="minimax-m3", pairs=(_pair("<mm:think>", "</mm:think>"),), implicit_start="always"),
    Family(
        name="seed",
        pairs=(_pair("<seed:think>", "</seed:think>"),),
        implicit_start="always",
        trailers=("<seed:eos>",),
    ),
    # Hunyuan V3 and V4.
    Family(name="hy", pairs=_THINK, breaks=("<tool_calls>",)),
    Family(
        name="hunyuan-a13b",
        pairs=_THINK,
        answer_starts=("<answer>",),
        trailers=("\n</answer>", "</answer>", "<|eos|>"),
    ),
    Family(
        name="ernie",
        pairs=_THINK,
        implicit_start="always",
        answer_starts=("<response>",),
        trailers=("\n</response>", "</response>", "</s>"),
    ),
    # Plain language, so it is opt-in only: a marker cannot be distinguished from a sentence.
    Family(
        name="granite-3.2",
        pairs=(
            Pair(
                ("Here is my thought process:", "Here's my thought process:"),
                ("Here is my response:", "Here's my response:"),
            ),
        ),
        trailers=("<|end_of_text|>",),
    ),
    Family(
        name="cohere",
        pairs=(_pair("<|START_THINKING|>", "<|END_THINKING|>"),),
        implicit_start="always",
        special_breaks=("<|START_ACTION|>",),
        structural=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        trailers=("<|END_OF_TURN_TOKEN|>",),
    ),
    # `thought` is the channel's label; the line break after it is stripped like any white space.
    Family(name="gemma4", pairs=(_pair("<|channel>thought", "<channel|>"),), trailers=("<turn|>",)),
    Family(
        name="apertus",
        pairs=(_pair("<|inner_prefix|>", "<|inner_suffix|>"),),
        position="anywhere",
        special_breaks=("<|tools_prefix|>",),
        trailers=("<|assistant_end|>",),
    ),
    Family(name="plamo3", pairs=(_pair("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),)),
    # The effort chooses the pair: high, medium, low.
    Family(
        name="k2-horizon",
        pairs=(
            _pair("<ifm|think>", "</ifm|think>"),
            _pair("<ifm|think_fast>", "</ifm|think_fast>"),
            _pair("<ifm|think_faster>", "</ifm|think_faster>"),
        ),
        implicit_start="always",
        breaks=("<ifm|tool_call",),
    ),
    Family(
        name="inkling",
        pairs=(_pair("<|message_model|><|content_thinking|>", "<|end_message|>"),),
        position="anywhere",
        structural=("<|message_model|><|content_text|>", "<|content_text|>", "<|end_message|>"),
        trailers=("<|content_model_end_sampling|>",),
    ),
    # The template writes `<|start|>assistant`, so the first message begins after it.
    Family(
        name="muse",
        pairs=(Pair(("to=self<|message|>", "<|start|>assistant to=self<|message|>"), ("<|eom|>",)),),
        position="anywhere",
        answer_starts=("to=user<|message|>",),
        structural=("<|start|>assistant to=user<|message|>",),
        trailers=("<|eot|>",),
    ),
    # The full closing marker is `<|end|><|start|>assistant`; its first half is sufficient.
    Family(
        name="beam",
        pairs=(_pair("<|channel|>analysis<|message|>", "<|end|>"),),
        position="anywhere",
        structural=("<|end|>", "<|start|>assistant", "<|channel|>final<|message|>"),
        trailers=("<|return|>",),
    ),
    # Markers from prompts and from compatibility endpoints. Opt-in.
    Family(
        name="generic",
        pairs=(
            *_THINK,
            _pair("<thinking>", "</thinking>"),
            _pair("<thought>", "</thought>"),
            _pair("<reason>", "</reason>"),
            _pair("<reasoning>", "</reasoning>"),
            _pair("<|begin_of_thought|>", "<|end_of_thought|>"),
        ),
        trailers=_EOS,
    ),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({row.name: row for row in _ROWS})
"""Every known family by name. Harmony is not a row: its headers need a parser of their own."""


def family(which: str | tuple[str, str]) -> Family:
    """Return the family for a configured value.

    Args:
        which: A row's name, or a (start, end) pair.

    Raises:
        ValueError: No row has the name; the message lists the known families.
    """
    if isinstance(which, tuple):
        return custom(*which)
    row = FAMILIES.get(which)
    if row is None:
        raise ValueError(f"unknown marker family {which!r}; known are {', '.join(sorted(FAMILIES))}")
    return row

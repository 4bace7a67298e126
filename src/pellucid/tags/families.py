"""Marker families as data: which strings open and close a model's reasoning, one row per family.

A row holds values only; what they mean is decided in one place, the splitter:

* Markers are literal strings, matched exactly: no case folding, no attributes, no spaces inside.
* White space around a marker is never part of the marker; the splitter strips and keeps it.
* A marker is complete as soon as its last character is read: where one is a prefix of another, the
  shorter wins.
* What is dropped from the answer is named here, as `answer_starts`, `structural` or `trailers`; nothing
  else ever is, but for a closing marker that has nothing to close.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

ImplicitStart = Literal["never", "always", "auto", "thinking"]
"""Where generation begins when nothing says otherwise.

`never`: outside reasoning, the opening marker must come. `always`: inside, because the template wrote the
marker or the model leaves it out. `auto`: not known; the text is held until a marker decides. `thinking`:
inside while thinking is switched on, outside while it is off.
"""

Position = Literal["start", "anywhere"]
"""Where an opening marker counts: only where the output starts, or anywhere outside of code."""

WHITESPACE = " \t\r\n"
"""What is stripped around markers. Other Unicode spaces are content."""


class Pair(msgspec.Struct, frozen=True):
    """Markers that belong together: reasoning opened by any of `starts` ends at any of `ends`."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One way of marking reasoning in text.

    `breaks` are tool markers that end reasoning without a closing marker when they stand at the start of a
    line; `special_breaks` do so anywhere, because they are tokens that prose does not contain. Both stay in
    the answer. `answer_starts` are dropped where the answer begins, `trailers` (end-of-sequence tokens,
    closing wrappers) where reasoning or answer ends, `structural` wherever the answer holds them.

    Raises ValueError for a marker that is empty or has white space where the splitter would strip it.
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

# End-of-sequence tokens that servers leak into text. `</s>` is not among them: it is HTML, too.
_EOS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<｜end▁of▁sentence｜>")


def hy(suffix: str) -> Family:
    """Hunyuan V3 and V4: `<think{suffix}>` … `</think{suffix}>`; the suffix (say `:xyz`) is the tokenizer's."""
    return Family(name="hy", pairs=(_pair(f"<think{suffix}>", f"</think{suffix}>"),), breaks=("<tool_calls>",))


def custom(start: str, end: str, *, implicit_start: ImplicitStart = "never") -> Family:
    """A family of one configured pair, such as the profile field `thinking_tags=('<think>', '</think>')`.

    White space at the ends of the markers is ignored, since the splitter strips it around every marker.
    Raises ValueError if a marker is blank.
    """
    pair = _pair(start.strip(WHITESPACE), end.strip(WHITESPACE))
    return Family(name="custom", pairs=(pair,), implicit_start=implicit_start)


_ROWS = (
    # The default everywhere. Hybrid models begin outside or inside, by their template: tell the splitter.
    Family(name="think", pairs=_THINK, trailers=_EOS),
    # Generation begins inside: DeepSeek-R1 (R1-0528 writes the marker all the same), QwQ, MiniMax-M2, Step3.
    Family(name="think-forced", pairs=_THINK, implicit_start="always", trailers=_EOS),
    # Inside only when thinking was asked for: DeepSeek-V3.1 and later, Holo2.
    Family(name="think-explicit", pairs=_THINK, implicit_start="thinking", trailers=_EOS),
    # A tool call ends reasoning, too: Qwen3.5, GLM, Nemotron, Granite, Hunyuan, Kimi-K2.
    Family(
        name="think+tool-close",
        pairs=_THINK,
        implicit_start="thinking",
        breaks=("<tool_call>", "<tool_calls>", "<ifm|tool_call"),
        special_breaks=("<|tool_calls_section_begin|>",),
        trailers=_EOS,
    ),
    Family(name="kimi-vl", pairs=(_pair("◁think▷", "◁/think▷"),), trailers=_EOS),
    Family(
        name="kimi-k3",
        pairs=(_pair("<|open|>think<|sep|>", "<|close|>think<|sep|>"),),
        implicit_start="thinking",
        special_breaks=("<|open|>tools<|sep|>",),
        structural=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        trailers=("<|end_of_msg|>", *_EOS),
    ),
    Family(name="mistral", pairs=(_pair("[THINK]", "[/THINK]"),)),
    Family(name="minimax-m3", pairs=(_pair("<mm:think>", "</mm:think>"),), implicit_start="thinking"),
    Family(
        name="seed",
        pairs=(_pair("<seed:think>", "</seed:think>"),),
        implicit_start="thinking",
        trailers=("<seed:eos>",),
    ),
    hy(""),
    Family(
        name="hunyuan-a13b",
        pairs=_THINK,
        answer_starts=("<answer>",),
        trailers=("\n</answer>", "</answer>", "<|eos|>"),
    ),
    Family(
        name="ernie",
        pairs=_THINK,
        implicit_start="thinking",
        answer_starts=("<response>",),
        trailers=("\n</response>", "</response>", "</s>"),
    ),
    # Plain language, so it is opt-in only: nothing tells a marker from a sentence.
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
        implicit_start="thinking",
        special_breaks=("<|START_ACTION|>",),
        structural=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        trailers=("<|END_OF_TURN_TOKEN|>",),
    ),
    # `thought` is the channel's label; the line break behind it is stripped like any white space.
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
    # The template writes `<|start|>assistant`, so the first message begins behind it.
    Family(
        name="muse",
        pairs=(Pair(("to=self<|message|>", "<|start|>assistant to=self<|message|>"), ("<|eom|>",)),),
        position="anywhere",
        answer_starts=("to=user<|message|>",),
        structural=("<|start|>assistant to=user<|message|>",),
        trailers=("<|eot|>",),
    ),
    # The closing marker is really `<|end|><|start|>assistant`; its first half says enough.
    Family(
        name="beam",
        pairs=(_pair("<|channel|>analysis<|message|>", "<|end|>"),),
        position="anywhere",
        structural=("<|end|>", "<|start|>assistant", "<|channel|>final<|message|>"),
        trailers=("<|return|>",),
    ),
    # What people write into prompts, and what compatibility endpoints make up. Opt-in.
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
"""Every known family by its name. Harmony is not a row: its headers need a parser of their own."""


def family(which: Family | str | tuple[str, str]) -> Family:
    """The family that a configuration means: a row's name, a (start, end) pair, or a family itself.

    Raises ValueError, naming the known families, for a name that no row has.
    """
    if isinstance(which, Family):
        return which
    if isinstance(which, tuple):
        return custom(*which)
    row = FAMILIES.get(which)
    if row is None:
        raise ValueError(f"unknown marker family {which!r}; known are {', '.join(sorted(FAMILIES))}")
    return row

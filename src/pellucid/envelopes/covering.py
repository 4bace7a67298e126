"""Which patterns allow no more than another: so that nobody gives what they lack.

`covers(wide, narrow)` may say no where yes were true, and never yes where no is. Of texts it says what is true: both
are finite automata, and a text that tells them apart would be found. Of objects it compares rule with rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .automaton import MAX_SIZE, Automaton, Steps, points
from .patterns import (
    Anywhere,
    At,
    Fields,
    Name,
    Names,
    Not,
    OneOf,
    Pattern,
    Rule,
    Same,
    Text,
    Texts,
    Where,
    Word,
    allows,
)
from .syntax import literal


def covers(wide: Pattern, narrow: Pattern, steps: Steps) -> bool:
    """Whether `wide` allows whatever `narrow` does, as far as that can be shown. Raises `OutOfSteps`."""
    steps.spend()
    match narrow:
        case OneOf(options):
            return all(covers(wide, option, steps) for option in options)
        case Same(value):
            return allows(wide, value, steps)
        case Word(text):
            return allows(wide, text, steps)
        case Texts() | Not():
            return _contains(list(_texts(wide)), narrow, steps)
        case Fields(rules):
            return any(
                all(_implied(rule, narrow, rules, steps) for rule in option.rules)
                for option in _options(wide)
                if isinstance(option, Fields)
            )


def _options(pattern: Pattern) -> Iterator[Pattern]:
    if isinstance(pattern, OneOf):
        for option in pattern.options:
            yield from _options(option)
    else:
        yield pattern


def _texts(pattern: Pattern) -> Iterator[Text]:
    for option in _options(pattern):
        if isinstance(option, Word | Texts | Not):
            yield option


def _implied(rule: Rule, narrow: Fields, given: tuple[Rule, ...], steps: Steps) -> bool:
    """Whether an object that keeps the given rules (those of `narrow`) keeps this one."""
    if isinstance(rule.where, Anywhere):
        return _somewhere(rule.pattern, narrow, steps)
    return any(_reaches(rule.where, one.where, steps) and covers(rule.pattern, one.pattern, steps) for one in given)


def _reaches(wide: Name | Names | At, narrow: Where, steps: Steps) -> bool:
    """Whether what stands at `narrow` stands at `wide`."""
    match wide, narrow:
        case Names(automaton), Name(key):
            return automaton.matches(key, steps)
        case Names(automaton), Names(inner):
            return _contains([Texts(automaton)], Texts(inner), steps)
        case (Name(), Name()) | (At(), At()):
            return wide == narrow
    return False


def _somewhere(pattern: Pattern, given: Pattern, steps: Steps) -> bool:
    """Whether whatever `given` allows holds, or is, something that the pattern allows."""
    if covers(pattern, given, steps):
        return True
    match given:
        case OneOf(options):
            return all(_somewhere(pattern, option, steps) for option in options)
        case Fields(rules):
            return any(_somewhere(pattern, rule.pattern, steps) for rule in rules)
    return False


def _contains(wide: list[Text], narrow: Text, steps: Steps) -> bool:
    """Whether every text of `narrow` is one of the `wide`: no way of reading on tells one that is not."""
    leaves = {id(leaf): _leaf(leaf) for text in (narrow, *wide) for leaf in _leaves(text)}
    if None in leaves.values():
        return False
    automata = {key: automaton for key, automaton in leaves.items() if automaton is not None}
    signs = points(automata.values())
    begin = tuple(Automaton.START for _ in automata)
    seen, waiting = {begin}, [begin]
    while waiting:
        states = waiting.pop()
        now = {key: (automaton, state) for (key, automaton), state in zip(automata.items(), states, strict=True)}
        if _settled(narrow, now) is False or any(_settled(text, now) for text in wide):
            continue
        if _accepts(narrow, now) and not any(_accepts(text, now) for text in wide):
            return False
        for sign in signs:
            after = tuple(automaton.move(state, sign, steps) for automaton, state in now.values())
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return True


_Now: TypeAlias = dict[int, tuple[Automaton, int]]


def _leaves(text: Text) -> Iterator[Word | Texts]:
    while isinstance(text, Not):
        text = text.of
    yield text


def _leaf(text: Word | Texts) -> Automaton | None:
    """None: it is too long to be compared with anything but itself."""
    if isinstance(text, Texts):
        return text.automaton
    return Automaton(literal(text.text)) if len(text.text) <= MAX_SIZE else None


def _settled(text: Text, now: _Now) -> bool | None:
    if isinstance(text, Not):
        inner = _settled(text.of, now)
        return None if inner is None else not inner
    automaton, state = now[id(text)]
    return automaton.settled(state)


def _accepts(text: Text, now: _Now) -> bool:
    if isinstance(text, Not):
        return not _accepts(text.of, now)
    automaton, state = now[id(text)]
    return automaton.accepts(state)

"""Evaluate the embedded model: the share of right answers, and whether its reasoning block always closes.

    python bench/local_eval.py                                  # the default model, thinking
    python bench/local_eval.py --direct                         # the same questions with thinking off
    python bench/local_eval.py --tools                          # ten questions beside three tools instead
    python bench/local_eval.py --template T.jinja --grammar G.gbnf   # another recipe, for comparison

36 short questions, each with a pattern that a right answer contains and, where a wrong answer could contain it
too, one that it must not contain. The answer is judged, never the reasoning. The figures are written as one
JSON object to stdout (and to --out, with every answer, so that a person can check the judging).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

# (kind, question, must match, must not match); patterns are searched case-insensitively in the answer.
QUESTIONS: list[tuple[str, str, str, str]] = [
    ("arithmetic", "What is 17 times 6?", r"\b102\b", ""),
    ("arithmetic", "What is 245 + 378?", r"\b623\b", ""),
    ("arithmetic", "What is 1000 minus 357?", r"\b643\b", ""),
    (
        "arithmetic",
        "What is 144 divided by 12?",
        r"\b(12|twelve)\b[^\d]*$|= ?\**12\b|is \**12\b|equals \**12\b",
        "",
    ),
    ("arithmetic", "What is 15% of 80?", r"\b12\b(?!%)", ""),
    ("arithmetic", "A train travels 60 km in 45 minutes. What is its speed in km/h?", r"\b80\b", ""),
    (
        "arithmetic",
        "A shirt costs 40 dollars and is reduced by 25%. What is the new price in dollars?",
        r"\b30\b",
        "",
    ),
    (
        "arithmetic",
        "A bakery bakes 12 rolls an hour for 6 hours and sells 50 of them. How many rolls are left?",
        r"\b22\b",
        "",
    ),
    (
        "arithmetic",
        "Tom has 3 boxes with 8 pencils each. He gives away 5 pencils. How many pencils has he left?",
        r"\b19\b",
        "",
    ),
    ("arithmetic", "What is 7 squared plus 5?", r"\b54\b", ""),
    ("arithmetic", "How many minutes are there in 3 and a half hours?", r"\b210\b", ""),
    ("arithmetic", "Anna is twice as old as Ben. Ben is 14. How old will Anna be in 3 years?", r"\b31\b", ""),
    (
        "logic",
        "All cats are animals. Tom is a cat. Is Tom an animal? Answer yes or no.",
        r"\byes\b|is (indeed )?an animal",
        r"\bno\b|not an animal",
    ),
    (
        "logic",
        "Alice is taller than Bob. Bob is taller than Carol. Who is the shortest?",
        r"carol",
        r"(alice|bob)\W* is (the )?shortest",
    ),
    ("logic", "What day of the week comes two days after Friday?", r"sunday", r"saturday\W*$"),
    ("logic", "If yesterday was Monday, what day is tomorrow?", r"wednesday", ""),
    ("logic", "What is the next number in the sequence 2, 4, 8, 16?", r"\b32\b", ""),
    ("logic", "What is the next number in the sequence 1, 4, 9, 16, 25?", r"\b36\b", ""),
    (
        "logic",
        "Which is larger, 9.11 or 9.9?",
        r"9\.9\W*( is|\W*$)|\*\*9\.9\b|larger[^.]*is[^.]*9\.9",
        r"9\.11\W* is (the )?(larger|greater|bigger)",
    ),
    (
        "logic",
        "A farmer has 17 sheep. All but 9 run away. How many sheep are left?",
        r"\b(9|nine)\b",
        r"\b8 sheep (are )?(left|remain)",
    ),
    ("logic", "Is 51 a prime number? Answer yes or no.", r"\bno\b|not (a )?prime", r"\byes\b"),
    (
        "logic",
        "No fish can fly a plane. Nemo is a fish. Can Nemo fly a plane? Answer yes or no.",
        r"\bno\b|cannot|can't",
        r"\byes\b",
    ),
    ("knowledge", "What is the capital of France?", r"paris", ""),
    ("knowledge", "What is the capital of Australia?", r"canberra", ""),
    ("knowledge", "Which planet is known as the red planet?", r"mars", ""),
    ("knowledge", "What is the chemical symbol of gold?", r"\bau\b", ""),
    ("knowledge", "Who wrote Romeo and Juliet?", r"shakespeare", ""),
    ("knowledge", "At what temperature in degrees Celsius does water boil at sea level?", r"\b100\b", ""),
    ("knowledge", "How many continents are there?", r"\b(7|seven)\b", ""),
    ("knowledge", "Which is the largest ocean on Earth?", r"pacific", ""),
    ("knowledge", "Which gas do plants take in for photosynthesis?", r"carbon dioxide|co2|co₂", ""),
    ("string", "Spell the word cat backwards.", r"\btac\b|t-a-c", ""),
    ("string", "How many letters does the word banana have?", r"\b(6|six)\b", ""),
    ("string", "How many times does the letter r occur in strawberry?", r"\b(3|three)\b", ""),
    ("string", "What is the first letter of the word elephant?", r"\W[\"'*]*e[\"'*]*\W", ""),
    ("string", "Write the word hello in capital letters.", r"(?-i:HELLO)", ""),
]  # fmt: skip


def _tool(name: str, description: str, **fields: str) -> dict[str, Any]:
    properties = {field: {"type": kind} for field, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("get_weather", "Get the current weather for a city.", city="string"),
    _tool("add", "Add two numbers.", a="number", b="number"),
    _tool("send_email", "Send an e-mail.", to="string", subject="string", body="string"),
]
# (question, the one tool that should be called: "" for none)
TOOL_QUESTIONS = [
    ("What is the weather in Paris?", "get_weather"),
    ("Is it raining in Tokyo right now?", "get_weather"),
    ("Use the tool to add 12345 and 67890.", "add"),
    (
        "Please send an e-mail to bob@example.com with the subject Lunch and the text: See you at noon.",
        "send_email",
    ),
    ("What is the temperature in Berlin?", "get_weather"),
    ("What is 3.5 plus 4.25? Use a function.", "add"),
    ("What is the capital of France?", ""),
    ("Who wrote Hamlet?", ""),
    ("Say hello.", ""),
    ("How many legs has a spider?", ""),
]


def right(answer: str, must: str, must_not: str) -> bool:
    text = f" {answer.strip()} "
    flags = re.IGNORECASE
    return bool(re.search(must, text, flags)) and not (must_not and re.search(must_not, text, flags))


async def ask(http: aiohttp.ClientSession, url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """One streamed completion, put together: reasoning, answer, finish, usage, timings."""
    headers = {"Authorization": f"Bearer {key}"}
    got: dict[str, Any] = {"reasoning_content": "", "content": "", "calls": [], "finish": None}
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    async with http.post(f"{url}/chat/completions", json=body, headers=headers) as reply:
        if reply.status != 200:
            raise SystemExit(f"the engine answered {reply.status}: {await reply.text()}")
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                got["finish"] = choice["finish_reason"] or got["finish"]
                for call in choice["delta"].get("tool_calls") or ():
                    if name := call.get("function", {}).get("name"):
                        got["calls"].append(name)
                for name in ("reasoning_content", "content"):
                    got[name] += choice["delta"].get(name) or ""
            got |= {name: chunk[name] for name in ("usage", "timings") if name in chunk}
    return got


async def run_tools(options: argparse.Namespace, url: str, key: str) -> dict[str, Any]:
    from pellucid.local.request import adapt_body

    rows: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        for question, tool in TOOL_QUESTIONS:
            body = adapt_body(
                {
                    "messages": [{"role": "user", "content": question}],
                    "tools": TOOLS,
                    "temperature": options.temperature,
                    "seed": options.seed,
                    "max_tokens": options.max_tokens,
                    "reasoning_effort": "none" if options.direct else "medium",
                }
            )
            row = await ask(http, url, key, body)
            rows.append(row | {"question": question, "right": row["calls"] == ([tool] if tool else [])})
            print(f"{'ok ' if rows[-1]['right'] else '-- '} {question} {row['calls']}", file=sys.stderr, flush=True)
    return {
        "label": options.label,
        "calls_wanted_and_made": sum(row["right"] for row in rows if row["calls"]),
        "no_call_wanted_and_none_made": sum(row["right"] for row in rows if not row["calls"]),
        "questions": len(rows),
        "reasoned": sum(bool(row["reasoning_content"].strip()) for row in rows),
        "rows": rows,
    }


async def run(options: argparse.Namespace, url: str, key: str, grammar: str | None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=600)
    # llama.cpp's server closes the connection after a stream without saying so: a pool would reuse a dying one.
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as http:
        for kind, question, must, must_not in QUESTIONS[: options.limit]:
            body: dict[str, Any] = {
                "model": "local",
                "messages": [{"role": "user", "content": question}],
                "temperature": options.temperature,
                "seed": options.seed,
                "max_tokens": options.max_tokens,
            }
            if grammar is not None:
                body["grammar"] = grammar
            elif not options.bare:
                from pellucid.local.request import adapt_body

                body = adapt_body(body | {"reasoning_effort": "none" if options.direct else "medium"})
            if options.direct:
                body["chat_template_kwargs"] = {"enable_thinking": False}
            reply = await ask(http, url, key, body)
            answer, thought = reply["content"], reply["reasoning_content"]
            rows.append(
                {
                    "kind": kind,
                    "question": question,
                    "right": right(answer, must, must_not),
                    "closed": bool(answer.strip()) and "<think" not in answer and "</think" not in answer,
                    "finish": reply["finish"],
                    "tokens": reply["usage"]["completion_tokens"],
                    "tokens_per_second": reply.get("timings", {}).get("predicted_per_second"),
                    "reasoning": thought,
                    "answer": answer,
                }
            )
            print(f"{'ok ' if rows[-1]['right'] else '-- '} {question}", file=sys.stderr, flush=True)
    rates = sorted(row["tokens_per_second"] for row in rows if row["tokens_per_second"])
    kinds = sorted({row["kind"] for row in rows})
    return {
        "label": options.label,
        "questions": len(rows),
        "right": sum(row["right"] for row in rows),
        "by_kind": {
            kind: f"{sum(r['right'] for r in rows if r['kind'] == kind)}/{sum(r['kind'] == kind for r in rows)}"
            for kind in kinds
        },
        "answer_present_and_block_closed": sum(row["closed"] for row in rows),
        "reasoned": sum(bool(row["reasoning"].strip()) for row in rows),
        "stopped_by_limit": sum(row["finish"] == "length" for row in rows),
        "mean_tokens": round(sum(row["tokens"] for row in rows) / len(rows), 1),
        "median_tokens_per_second": round(rates[len(rates) // 2], 1) if rates else None,
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
    }


async def main(options: argparse.Namespace, grammar: str | None) -> dict[str, Any]:
    if options.base_url:
        result = await run(options, options.base_url, options.api_key, grammar)
    else:
        from pellucid.local.fetch import fetch
        from pellucid.local.model_index import find_model
        from pellucid.local.supervisor import Engine

        entry = find_model(options.model)
        path = options.gguf or await fetch(entry)
        async with Engine(entry, path, template=options.template and Path(options.template)) as engine:
            await engine.wait_ready()
            if options.tools:
                result = await run_tools(options, engine.base_url, engine.api_key)
            else:
                result = await run(options, engine.base_url, engine.api_key, grammar)
    return result


def report(options: argparse.Namespace, result: dict[str, Any]) -> None:
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1, ensure_ascii=False))
    print(json.dumps({name: value for name, value in result.items() if name != "rows"}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="a name from the catalogue")
    parser.add_argument("--gguf", type=Path, help="a weight file of your own instead of the catalogue's")
    parser.add_argument("--template", help="a chat template instead of the bundled one")
    parser.add_argument("--grammar", help="a grammar instead of the bundled one")
    parser.add_argument("--direct", action="store_true", help="thinking off")
    parser.add_argument("--tools", action="store_true", help="the ten questions beside three tools")
    parser.add_argument("--bare", action="store_true", help="send neither grammar nor template arguments")
    parser.add_argument("--base-url", help="a running engine (…/v1) instead of starting one")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--limit", type=int, default=len(QUESTIONS))
    parser.add_argument("--max-tokens", type=int, default=220)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--label", default="")
    parser.add_argument("--out", help="also write every question and answer to this file")
    chosen = parser.parse_args()
    report(chosen, asyncio.run(main(chosen, Path(chosen.grammar).read_text() if chosen.grammar else None)))

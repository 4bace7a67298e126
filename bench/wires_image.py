"""Draw `docs/images/wires.svg`: three providers' wires, and the one stream that all three become.

    .venv/bin/python bench/wires_image.py

The captures stand below, in each provider's form. The stream is what the gateway's decoder and encoder make of them;
the script fails if it is not the same, to the byte, for all three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
IMAGE = ROOT / "docs" / "images" / "wires.svg"

THOUGHT, ANSWER = "Six sevens are 42.", "It is 42."
THOUGHT_COLOR, ANSWER_COLOR, PLAIN_COLOR, DIM_COLOR = "#f2b866", "#8fd0ff", "#c9d1d9", "#7d8794"
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CHARACTER, LINE, SIZE = 7.0, 18, 11.6


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def sse(*frames: object) -> str:
    return "".join(f"data: {frame if isinstance(frame, str) else _json(frame)}\n\n" for frame in frames)


def chat(*deltas: object) -> str:
    frames = [{"choices": [{"delta": delta}]} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    return sse(*frames, end, "[DONE]")


CAPTURES = {
    "DeepSeek: a field of its own": ("deepseek", chat({"reasoning_content": THOUGHT}, {"content": ANSWER})),
    "Qwen on a local server: tags in the text, cut anywhere": (
        "vllm",
        chat({"content": f"<think>{THOUGHT}</th"}, {"content": f"ink>{ANSWER}"}),
    ),
    "Mistral: blocks in the content": (
        "mistral",
        chat({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}, {"content": ANSWER}),
    ),
}
EVENTS = {  # of the stream: the event, and what is shown of its data
    "response.output_item.added": "item.type",
    "response.reasoning.delta": "delta",
    "response.output_text.delta": "delta",
    "response.output_item.done": "item.type",
    "response.completed": "",
}


def stream_of(profile: str, capture: str) -> str:
    """Return the OpenResponses stream of a provider's response."""
    with tempfile.NamedTemporaryFile("w", suffix=".sse") as file:
        file.write(capture)
        file.flush()
        command = [sys.executable, "-m", "pellucid", "translate", "--from", profile, "--to", "openresponses"]
        done = subprocess.run([*command, file.name], capture_output=True, text=True, check=True)
    return done.stdout


def shown(stream: str) -> list[str]:
    """Return a line for each event of the stream that the picture shows."""
    lines = []
    for frame in stream.split("\n\n"):
        name, _, data = frame.removeprefix("event: ").partition("\ndata: ")
        if name in EVENTS:
            value = json.loads(data)
            for key in EVENTS[name].split(".") if EVENTS[name] else ():
                value = value[key]
            lines.append(f"{name:<27} {json.dumps(value) if isinstance(value, str) else ''}".rstrip())
    return lines


def wrapped(capture: str, width: int) -> list[str]:
    """Return the lines of a capture without its end, broken after a comma where they are too long."""
    lines = []
    for line in capture.split("\n"):
        while len(line) > width:
            end = line.rindex(",", 0, width) + 1
            lines.append(line[:end])
            line = "      " + line[end:]
        if line and "finish_reason" not in line and "[DONE]" not in line:
            lines.append(line)
    return lines


def text(x: float, y: float, line: str, color: str = PLAIN_COLOR, **more: str) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x}" y="{y}" fill="{color}" xml:space="preserve"{attributes}>{line}</text>'


def colored(line: str) -> str:
    """Return a line with the thought and the answer in their colours."""
    out = escape(line)
    for value, color in ((THOUGHT, THOUGHT_COLOR), (ANSWER, ANSWER_COLOR)):
        out = out.replace(escape(value), f'<tspan fill="{color}" font-weight="600">{escape(value)}</tspan>')
    return out


def panel(x: float, y: float, width: float, title: str, lines: list[str]) -> tuple[list[str], float]:
    """Draw a titled box of lines. Returns its elements and its height."""
    height = 34 + LINE * len(lines) + 12
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="#161b22" stroke="#30363d"/>']
    out.append(text(x + 14, y + 22, escape(title), DIM_COLOR, font_weight="600"))
    out += [text(x + 14, y + 46 + LINE * number, colored(line)) for number, line in enumerate(lines)]
    return out, height


def main() -> None:
    streams = {profile: stream_of(profile, capture) for profile, capture in CAPTURES.values()}
    if len(set(streams.values())) != 1:
        raise SystemExit(f"the streams differ: {streams}")
    lines = shown(next(iter(streams.values())))
    left, gap, middle = 560, 16, 110
    elements: list[str] = []
    y = 20.0
    centres = []
    for title, (_, capture) in CAPTURES.items():
        drawn, height = panel(20, y, left, title, wrapped(capture, int((left - 28) / CHARACTER)))
        elements += drawn
        centres.append(y + height / 2)
        y += height + gap
    total = y - gap + 20
    right = 20 + left + middle
    _, height = panel(right, 0, 430, "", lines)
    drawn, _ = panel(right, (total - height) / 2, 430, "One stream, in the protocol of your client", lines)
    elements += drawn
    middle_y = total / 2
    for centre in centres:
        start, end = 20 + left, right - 6
        bend = (start + end) / 2
        elements.append(
            f'<path d="M{start + 4} {centre} C{bend} {centre} {bend} {middle_y} {end} {middle_y}" fill="none" '
            'stroke="#f2b866" stroke-width="2" marker-end="url(#arrow)"/>'
        )
    width = right + 430 + 20
    IMAGE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total:g}" font-family="{FONT}" '
        f'font-size="{SIZE}" role="img" aria-label="Three wires become one stream">\n'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#f2b866"/></marker></defs>\n'
        f'<rect width="{width}" height="{total:g}" rx="12" fill="#0d1117"/>\n' + "\n".join(elements) + "\n</svg>\n"
    )
    print(f"{IMAGE.relative_to(ROOT)}: {IMAGE.stat().st_size} bytes")


if __name__ == "__main__":
    main()

"""The bench's own virtual environment (`bench/.venv`): everything that we are compared with, in known versions."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ENVIRONMENT = BENCH / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"

REQUIREMENTS = (
    "openai==3.52.0",
    "anthropic==2.11.0",
    "google-genai==2.34.0",
    "mistralai==3.7.0",
    "cohere==7.3.1",
    "ollama==0.6.3",
    "groq==1.7.0",
    "ag-ui-protocol==1.0.0",
    "pydantic-ai-slim[openai,anthropic,google,mistral,groq,ag-ui]==2.68.0",
)


def prepare() -> None:
    """Makes the environment, if it is not there or was made for other versions."""
    wanted = hashlib.sha256("\n".join((sys.version, *REQUIREMENTS)).encode()).hexdigest()
    stamp = ENVIRONMENT / "made-for"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("Installing the SDKs to compare with into bench/.venv …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--editable", str(BENCH.parent)], check=True)
    if subprocess.run([*pip, *REQUIREMENTS], check=False).returncode:
        # One that cannot be had is left out of the table, not all of them.
        for requirement in REQUIREMENTS:
            subprocess.run([*pip, requirement], check=False)
    stamp.write_text(wanted)


def offers(module: str) -> bool:
    """Whether the environment is there, or can be made, and has this module."""
    try:
        prepare()
    except (OSError, subprocess.CalledProcessError):
        return False
    return not subprocess.run([str(PYTHON), "-c", f"import {module}"], capture_output=True, check=False).returncode


def versions() -> dict[str, str]:
    """What is installed here; for whoever runs within the environment."""
    found = {}
    for requirement in REQUIREMENTS:
        name = requirement.partition("==")[0].partition("[")[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found

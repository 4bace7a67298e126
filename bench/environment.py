"""Virtual environments of the bench, with pinned versions of everything that the gateway is compared with.

`bench/.venv` has the vendors' SDKs; each gateway that is a peer has an environment to itself, because their
requirements exclude each other's. What cannot be installed is left out, with the reason.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

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


class PeerEnvironment(NamedTuple):
    """The requirements of one peer; they are installed into `bench/.venv-NAME`."""

    name: str
    requirements: tuple[str, ...]

    @property
    def directory(self) -> Path:
        return BENCH / f".venv-{self.name}"

    def program(self, name: str) -> str:
        return str(self.directory / "bin" / name)

    def prepare(self) -> str | None:
        """Make the environment, if it is not there or was made for other versions.

        Returns:
            Why it cannot be made; None when it is ready.
        """
        wanted = _digest(self.requirements)
        stamp = self.directory / "made-for"
        if stamp.is_file() and stamp.read_text() == wanted:
            return None
        print(f"Installing {', '.join(self.requirements)} into bench/{self.directory.name} …", file=sys.stderr)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(self.directory)],
            [self.program("python"), *PIP_INSTALL, *self.requirements],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                return (lines or done.stderr.splitlines() or [f"status {done.returncode}"])[-1]
        stamp.write_text(wanted)
        return None


PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")

TENSORZERO = PeerEnvironment("tensorzero", ("tensorzero==2026.6.0",))
LITELLM = PeerEnvironment("litellm", ("litellm[proxy]==1.106.2",))
PYDANTIC_AI = PeerEnvironment(
    "pydantic-ai", ("pydantic-ai-slim[openai,ag-ui]==2.68.0", "ag-ui-protocol==1.0.0", "uvicorn[standard]==0.54.0")
)

PEERS = (TENSORZERO, LITELLM, PYDANTIC_AI)


def _digest(requirements: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()


def prepare() -> None:
    """Create the environment of the SDKs, if it is missing or was created for other versions."""
    wanted = _digest(REQUIREMENTS)
    stamp = ENVIRONMENT / "made-for"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("Installing the SDKs to compare with into bench/.venv …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
    pip = [str(PYTHON), *PIP_INSTALL]
    subprocess.run([*pip, "--editable", str(BENCH.parent)], check=True)
    if subprocess.run([*pip, *REQUIREMENTS], check=False).returncode:
        # One that cannot be had is left out of the table, not all of them.
        for requirement in REQUIREMENTS:
            subprocess.run([*pip, requirement], check=False)
    stamp.write_text(wanted)


def versions() -> dict[str, str]:
    """Return the versions of the packages in the current environment."""
    installed = {}
    for requirement in REQUIREMENTS:
        name = requirement.partition("==")[0].partition("[")[0]
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed

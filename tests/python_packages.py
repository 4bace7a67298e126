"""Python packages that conflict with those of the project: a virtual environment for each list, outside of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 600


def environment(requirements: Path) -> Path:
    """Return the interpreter of an environment with exactly these packages; make it if it is missing."""
    pins = requirements.read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid"
    digest = sha256(pins + sys.version.encode()).hexdigest()
    wanted = cache / f"python-{digest[:16]}"
    if not wanted.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".python-", dir=cache) as made:
            fresh = Path(made) / "environment"
            _run(sys.executable, "-m", "venv", str(fresh))
            # Only what is imported is compiled, at its first import.
            pip = (str(fresh / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check")
            _run(*pip, "install", "--no-compile", "--no-deps", "--requirement", str(requirements))
            try:
                fresh.rename(wanted)
            except OSError:
                assert wanted.is_dir()  # another process has made it
    return wanted / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"pip could not install the clients: {done.stderr}"

"""Node packages, installed once for each lock file, outside of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory


def installed(there: Path) -> Path:
    """Return a directory with the packages of the lock file in `there`; install them if they are missing."""
    lock = (there / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid"
    wanted = cache / f"node-{sha256(lock).hexdigest()[:16]}"
    if not wanted.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".node-", dir=cache) as made:
            fresh = Path(made) / "clients"
            fresh.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(there / name, fresh)
            command = ["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, f"npm could not install the clients: {done.stderr}"
            try:
                fresh.rename(wanted)
            except OSError:
                assert wanted.is_dir()  # another process has installed it
    return wanted

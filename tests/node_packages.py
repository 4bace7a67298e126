"""Node packages, installed once for each list, outside of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 300


def installed(there: Path) -> Path:
    """Return a directory with the packages that `there` lists; install them if they are missing.

    The list is the lock file. Without one it is `package.json`, for packages whose optional dependencies are not in
    every registry.
    """
    has_lock = (there / "package-lock.json").is_file()
    files = ["package.json", *(["package-lock.json"] if has_lock else [])]
    lock = (there / files[-1]).read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pellucid"
    wanted = cache / f"node-{sha256(lock).hexdigest()[:16]}"
    if not wanted.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".node-", dir=cache) as made:
            fresh = Path(made) / "clients"
            fresh.mkdir()
            for name in files:
                shutil.copy(there / name, fresh)
            options = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
            command = ["npm", "ci" if has_lock else "install", *options]
            done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=SECONDS, check=False)
            assert done.returncode == 0, f"npm could not install the clients: {done.stderr}"
            try:
                fresh.rename(wanted)
            except OSError:
                assert wanted.is_dir()  # another process has installed it
    return wanted

"""Recorded responses of real providers: their directory and their list.

They are not part of the repository. `PELLUCID_RECORDINGS` names their directory; the default is a directory next to the
checkout. A test that reads them is marked `@pytest.mark.needs("recordings")`, and loops over them.
"""

from __future__ import annotations

import os
from pathlib import Path


def recordings_root() -> Path | None:
    """Return the directory of the recordings (`PROVIDER/NAME/response.body`), or None if there is none."""
    named = os.environ.get("PELLUCID_RECORDINGS")
    path = Path(named) if named else Path(__file__).parents[2] / "shared" / "recordings"
    return path if path.is_dir() else None


def recordings(*providers: str) -> list[Path]:
    """Return the directories of these providers' recorded responses (of all, if none is named), in order."""
    root = recordings_root()
    bodies = root.glob("*/*/response.body") if root else ()
    return sorted(path.parent for path in bodies if not providers or path.parts[-3] in providers)

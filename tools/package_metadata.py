"""Metadata of the package that depends on where the project is published: its links, and its long description.

The one place with the address is `repository` in pyproject.toml, `[tool.hatch.metadata.hooks.custom]`. README.md has
links relative to the repository. Outside of it, they lead to the tag of the released version; while there is no
address, a link becomes its text, and a picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)"
_TOKEN = re.compile(
    rf"^(?P<fence>`{{3,}}).*?^(?P=fence)$|`[^`\n]+`|{_LINK}|<(?P<name>img|source|a)\b[^>]*>",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
"""Code, a link or picture, or a tag of HTML with an address: what begins first."""

_ATTRIBUTE = re.compile(r"""\b(src|srcset|href)="([^"]+)\"""")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:|#|//")


class PackageMetadata(MetadataHookInterface):
    """Hatchling's hook: sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = str(self.config.get("repository", "")).rstrip("/")
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        description = long_description(readme, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": description}
        metadata["urls"] = project_urls(repository)


def project_urls(repository: str) -> dict[str, str]:
    """Return the links that a package index shows."""
    if not repository:
        return {"Changelog": "https://pypi.org/project/pellucid/#history"}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


def long_description(readme: str, repository: str, tag: str) -> str:
    """Return the README with links that work outside of the repository.

    Args:
        readme: Markdown, with links relative to the repository.
        repository: The address of the repository, or an empty string.
        tag: The tag of the version, to which links lead.
    """

    def absolute(target: str, is_image: bool) -> str | None:
        if _ABSOLUTE.match(target):
            return target
        if not repository:
            return None
        return f"{repository}/{'raw' if is_image else 'blob'}/{tag}/{target.removeprefix('./')}"

    def token(match: re.Match[str]) -> str:
        if match["target"]:
            return link(match)
        return tag_of_html(match) if match["name"] else match[0]

    def link(match: re.Match[str]) -> str:
        is_image = bool(match["image"])
        text = match["text"] if is_image else _TOKEN.sub(token, match["text"])
        target = absolute(match["target"], is_image)
        if target is None:
            return "" if is_image else text
        return f"{match['image']}[{text}]({target})"

    def tag_of_html(match: re.Match[str]) -> str:
        is_image = match["name"].lower() != "a"
        targets = [absolute(target, is_image) for _, target in _ATTRIBUTE.findall(match[0])]
        if None in targets:
            return "" if is_image else "<a>"
        return _ATTRIBUTE.sub(lambda attribute: f'{attribute[1]}="{absolute(attribute[2], is_image)}"', match[0])

    return _TOKEN.sub(token, readme)

"""The documentation as a site: generated pages are complete, every page is in its navigation, links lead somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pellucid.cli.main import COMMANDS
from tests.schemas import openapi_document
from tests.server.test_config_documented import KEYS
from tools.docs_site import PYTHON_MODULES, generated_pages, replace_outside_links

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pages = cache(generated_pages)


def test_every_configuration_key_has_its_row() -> None:
    page = pages()["reference/configuration.md"]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]* \| (.+) \|$", page, re.MULTILINE)
    assert all(effect.strip() for _, effect in rows)
    inner = {path[:-1] for path in KEYS if len(path) > 1}
    leaves = {path[-1] for path in KEYS if path not in inner and path[-1] != "*"}
    tables = set(re.findall(r"(\w+)(?:\.NAME)?\]`$", page, re.MULTILINE))
    assert leaves - {key for key, _ in rows} <= tables


def test_every_command_and_every_path_has_its_section() -> None:
    commands = {name for name, row in COMMANDS.items() if row.help is not None}
    sections = re.findall(r"^#+ `pellucid ([^`]+)`$", pages()["reference/commands.md"], re.MULTILINE)
    assert {name for name in sections if " " not in name} == commands
    assert {"keys create", "space tail", "config check"} <= set(sections)
    paths = re.findall(r"^## `([^`]+)`$", pages()["reference/http.md"], re.MULTILINE)
    assert paths == list(openapi_document()["paths"])


def test_every_metric_has_its_row_and_its_explanation() -> None:
    def labels_of_metrics(page: str) -> list[tuple[str, str]]:
        rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `pellucid_")]
        return [(name, labels) for name, *_, labels, _ in rows]

    generated = labels_of_metrics(pages()["reference/metrics.md"])
    assert generated == labels_of_metrics((DOCS / "telemetry.md").read_text("utf-8"))
    assert len(generated) > 20


def test_the_listed_modules_are_public() -> None:
    public = (DOCS / "python-api.md").read_text("utf-8")
    assert [name for name in PYTHON_MODULES if f"`{name}`" not in public] == []
    objects = re.findall(r"^::: (\S+)$", pages()["reference/python.md"], re.MULTILINE)
    assert len(objects) == len(set(objects)) > 100


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(navigation) == sorted([*(path.name for path in DOCS.glob("*.md")), *pages()])


def test_links_outside_of_the_documentation_lead_to_the_repository() -> None:
    text = "[a `b`](../src/x.py#y) and [c](d.md)"
    assert replace_outside_links(text, "https://example.org/r") == (
        "[a `b`](https://example.org/r/blob/main/src/x.py#y) and [c](d.md)"
    )
    assert replace_outside_links(text, "") == "a `b` and [c](d.md)"


def test_links_between_pages_lead_to_a_file_and_a_heading() -> None:
    headings = {path: headings_of(path) for path in DOCS.glob("*.md")}
    broken: list[str] = []
    for page in [*headings, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]:
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^()\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (anchor and anchor not in headings.get(file, {anchor})):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def headings_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}

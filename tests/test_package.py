"""The distributions: their content, the metadata that an index shows, and the wheel in a clean environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
from packaging.metadata import Metadata

from pellucid.version import __version__
from tests.scripted import Upstream, say
from tools.package_metadata import long_description, project_urls
from tools.release import ReleaseError, notes, prepare

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://example.org/house/pellucid"
README = """[![a badge](docs/b.svg)](docs/a.md) [site](https://example.org/) [here](#start) [two
lines](docs/two.md#part) <img src="docs/c.png" alt="c"> <a href="docs/d.md">d</a>

![a picture](docs/images/e.png)

`[code](docs/f.md)`

```markdown
[code](docs/g.md)
```
"""


def test_links_of_the_long_description_lead_to_the_tag() -> None:
    text = long_description(README, REPOSITORY, "v1.2.3")
    for target in ("docs/a.md", "docs/two.md#part", "docs/d.md"):
        assert f"{REPOSITORY}/blob/v1.2.3/{target}" in text
    for target in ("docs/b.svg", "docs/c.png", "docs/images/e.png"):
        assert f"{REPOSITORY}/raw/v1.2.3/{target}" in text
    assert "[site](https://example.org/) [here](#start)" in text
    assert text[text.index("`[code]") :] == README[README.index("`[code]") :]


def test_without_an_address_links_become_their_text() -> None:
    text = long_description(README, "", "v1.2.3")
    assert text.startswith(" [site](https://example.org/) [here](#start) two\nlines  <a>d</a>\n\n\n\n`[code]")


def test_the_readme_has_no_link_that_works_only_in_the_repository() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for repository in ("", REPOSITORY):
        text = long_description(readme, repository, "v1")
        targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", re.sub(r"```.*?```", "", text, flags=re.S))
        assert all(re.match(r"https?://|#", one or other) for one, other in targets), targets
    assert all(url.startswith("https://") for url in [*project_urls("").values(), *project_urls(REPOSITORY).values()])


def test_a_release_has_its_version_and_its_part_of_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "src/pellucid").mkdir(parents=True)
    (tmp_path / "src/pellucid/version.py").write_text('"""The version."""\n\n__version__ = "0.1.0"\n')
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 (2026-01-01)\n\n- All.\n")
    prepare(tmp_path, "0.2.0", date(2026, 12, 1))
    assert notes(tmp_path, "0.2.0") == "### Added\n\n- A thing.\n"
    assert changelog.read_text().startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### Added\n")
    for version in ("0.2.0", "0.3.0", "new"):  # it exists; nothing is unreleased; not a version
        with pytest.raises(ReleaseError):
            prepare(tmp_path, version, date(2026, 12, 2))
    with pytest.raises(ReleaseError, match=r"has the version 0\.2\.0"):
        notes(tmp_path, "0.1.0")


class Built(NamedTuple):
    sdist: Path
    wheel: Path

    @property
    def version_folder(self) -> str:
        return self.sdist.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the source distribution, and from it the wheel, as a release does."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel)


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.needs("long")
def test_the_wheel_has_the_package_alone(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
    assert {name.partition("/")[0] for name in names} == {"pellucid", f"pellucid-{__version__}.dist-info"}
    assert {
        "pellucid/py.typed", "pellucid/providers/profiles.toml", "pellucid/web/index.html",
        f"pellucid-{__version__}.dist-info/licenses/LICENSE", f"pellucid-{__version__}.dist-info/licenses/NOTICE",
    } <= set(names)  # fmt: skip
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/pellucid").rglob("*") if path.is_file()}
    assert {name for name in source if "__pycache__" not in name} <= set(names)
    assert [name for name in names if "__pycache__" in name or "node_modules" in name] == []


@pytest.mark.needs("long")
def test_an_index_can_show_the_metadata(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        text = wheel.read(f"pellucid-{__version__}.dist-info/METADATA")
    metadata = Metadata.from_email(text, validate=True)
    assert metadata.license_expression == "Apache-2.0"
    assert str(metadata.requires_python) == ">=3.11"
    assert metadata.description_content_type == "text/markdown"
    assert metadata.project_urls
    assert metadata.description is not None
    assert metadata.description.startswith("# Pellucid")
    classifiers = metadata.classifiers or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(classifiers)
    of_extra: dict[str, set[str]] = {extra: set() for extra in metadata.provides_extra or []}
    for row in metadata.requires_dist or []:
        for extra in re.findall(r"extra == ['\"]([\w-]+)", str(row.marker)):
            of_extra[extra].add(row.name)
    everything = of_extra.pop("all")
    assert everything == set().union(*(rows for extra, rows in of_extra.items() if extra not in ("dev", "docs")))


@pytest.mark.needs("long")
def test_the_source_distribution_is_a_checkout(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {str(PurePosixPath(name).relative_to(built.version_folder)) for name in sdist.getnames()}
        sdist.extractall(tmp_path, filter="data")
    assert {"Makefile", "ui/package.json", "ui/package-lock.json", "ui/stale.sh", "tests/needs.sh"} <= names
    assert [name for name in names if "node_modules" in name or "__pycache__" in name or name.endswith(".gguf")] == []
    if (ROOT / ".git").exists():
        committed = set(run("git", "ls-files").splitlines())
        left_out = {name for name in committed - names if not name.startswith((".ci/", ".github/"))}
        assert left_out == {".pre-commit-config.yaml", "CODE_OF_CONDUCT.md"} & committed
    # Its own files are used, and not those of this checkout.
    folder = tmp_path / built.version_folder
    for name in (".pytest_cache", ".hypothesis"):
        assert not (folder / name).exists()
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    quick = ["tests/test_tables.py", "tests/test_bench.py", "tests/framing"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick]
    assert " passed" in run(*command, cwd=folder, env=environment)


@pytest.mark.needs("long")
def test_the_wheel_answers_in_a_clean_environment(built: Built, tmp_path: Path, upstream: Upstream) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    run(sys.executable, "-m", "venv", str(python.parents[1]))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--constraint", "constraints.txt", str(built.wheel))
    command = str(python.with_name("pellucid"))
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    assert run(command, "--version", cwd=tmp_path, env=environment).split() == ["pellucid,", "version", __version__]
    assert json.loads(run(command, "openapi", cwd=tmp_path, env=environment))["openapi"]

    model = upstream.plays(say(text="It is 42."))
    options = ("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model)
    answer = run(command, "ask", *options, "What is it?", cwd=tmp_path, env=environment)
    assert "It is 42." in answer

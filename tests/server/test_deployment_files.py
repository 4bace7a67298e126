"""The files with which the gateway is deployed agree with it, and with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pellucid.server.config import Config, check_config
from tests.test_dependencies import versions

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
STORING_SECONDS = 25.0
"""What a stop may take after `drain_seconds` and `shutdown_seconds` (docs/telemetry.md)."""


def configuration(name: str) -> Config:
    environment = {"DATABASE_URL": "postgresql://pellucid@postgres/pellucid", "REDIS_URL": "redis://redis:6379"}
    return check_config(tomllib.loads((DEPLOY / name).read_text("utf-8")), environment)


@pytest.mark.parametrize("name", ["pellucid.toml", "compose.toml"])
def test_the_configuration_is_valid_and_requires_keys(name: str) -> None:
    assert configuration(name).access.keys


@pytest.mark.parametrize(
    ("file", "pattern", "name"),
    [
        ("deploy/pellucid.service", r"^TimeoutStopSec=(\d+)$", "pellucid.toml"),
        ("docs/deploy.md", r"--stop-timeout (\d+)", "pellucid.toml"),
        ("compose.yaml", r"stop_grace_period: (\d+)s", "compose.toml"),
    ],
)
def test_a_stop_may_take_as_long_as_it_needs(file: str, pattern: str, name: str) -> None:
    server = configuration(name).server
    [seconds] = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert float(seconds) > server.drain_seconds + server.shutdown_seconds + STORING_SECONDS


def test_the_image_listens_where_its_health_check_and_compose_expect_it() -> None:
    port = configuration("pellucid.toml").server.port
    assert port == configuration("compose.toml").server.port
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert f"EXPOSE {port}\n" in dockerfile
    assert f"http://127.0.0.1:{port}/health" in dockerfile
    assert f":{port}:{port}" in (ROOT / "compose.yaml").read_text("utf-8")


def test_the_image_is_built_from_files_that_its_context_has() -> None:
    context = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert sources == context
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_is_built_with_the_versions_of_the_tests() -> None:
    build = versions("deploy/requirements-build.lock")
    tested = versions("constraints.txt")
    assert build["hatchling"] == tested["hatchling"]
    assert all(tested.get(name, version) == version for name, version in build.items())

"""TensorZero's gateway, as its wheel embeds it: a Rust server within this process, without a database.

    bench/.venv-tensorzero/bin/python bench/peer_tensorzero.py --upstream http://127.0.0.1:9100/v1/ --port-file PORT

It chooses its port itself, and writes it to the file.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import urllib.parse
from pathlib import Path

import tensorzero

CONFIG = """\
[gateway]
disable_pseudonymous_usage_analytics = true
observability.enabled = false
[models.mock-r1]
routing = ["vllm"]
[models.mock-r1.providers.vllm]
type = "vllm"
model_name = "mock-r1"
api_base = "{upstream}"
api_key_location = "none"
"""


def write_port(file: Path, port: int | None) -> None:
    file.write_text(str(port))


async def main(upstream: str, port_file: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "tensorzero.toml"
        config.write_text(CONFIG.format(upstream=upstream))
        gateway = await tensorzero._start_http_gateway(
            config_file=str(config), clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=True
        )
        write_port(port_file, urllib.parse.urlsplit(gateway.base_url).port)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(main(options.upstream, options.port_file))

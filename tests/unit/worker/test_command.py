"""The command that runs workers: which targets are none, and what it looks at to start again."""

import os
import sys
from pathlib import Path

import pytest

from towpath_worker import Worker
from towpath_worker.command import CommandExit, TargetError, load_worker, main, parser
from towpath_worker.reload import changed, look


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules of this test alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(f"from towpath_worker import Worker\n{text}\n")


def test_a_target_is_imported_from_the_current_folder(folder: Path) -> None:
    write(folder, "shop_of_the_test", "worker = Worker('shop')")
    assert load_worker("shop_of_the_test:worker").queue == "shop"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop", "not of the form MODULE:NAME"),
        ("nowhere_at_all:worker", "there is no module 'nowhere_at_all'"),
        ("other_of_the_test:workre", "has no 'workre'"),
        ("other_of_the_test:number", "is not a towpath_worker.Worker"),
        ("missing_of_the_test:worker", "can't be imported"),
        ("twice_of_the_test:worker", "registered twice"),
    ],
)
def test_what_is_no_worker_is_told_in_a_sentence(
    folder: Path, target: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "other_of_the_test", "number = 1")
    write(folder, "missing_of_the_test", "import no_such_library")
    twice = "worker.task('a')(lambda: None)"
    write(folder, "twice_of_the_test", f"worker = Worker('q')\n{twice}\n{twice}")
    with pytest.raises(TargetError, match=words):
        load_worker(target)
    assert main([target]) == CommandExit.USAGE
    assert words in capsys.readouterr().err


def test_a_worker_that_cannot_start_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "idle_of_the_test", "worker = Worker('idle')")
    assert main(["idle_of_the_test:worker"]) == CommandExit.NOT_STARTED
    assert "has no task" in capsys.readouterr().err
    write(
        folder,
        "broken_of_the_test",
        "worker = Worker('b')\nworker.task('a')(lambda: None)\n"
        "@worker.lifespan\nasync def pool():\n    raise OSError('no database')\n    yield",
    )
    assert main(["broken_of_the_test:worker"]) == CommandExit.NOT_STARTED
    told = capsys.readouterr().err
    assert "the lifespan of the worker for queue 'b' did not start: OSError: no database" in told
    assert "Traceback" in told
    monkeypatch.setenv("TOWPATH_NATS_CREDENTIALS_FILE", "/nowhere/u.creds")
    write(folder, "wrong_of_the_test", "worker = Worker('w')\nworker.task('a')(lambda: None)")
    assert main(["wrong_of_the_test:worker"]) == CommandExit.NOT_STARTED
    assert "credentials_file /nowhere/u.creds can't be read" in capsys.readouterr().err
    monkeypatch.setenv("TOWPATH_PREFIX", "Not.Good")
    assert main(["wrong_of_the_test:worker"]) == CommandExit.NOT_STARTED
    assert "the settings of the connection: prefix" in capsys.readouterr().err
    monkeypatch.setenv("TOWPATH_WORKER_METRICS_PORT", "no-port")
    assert main(["wrong_of_the_test:worker"]) == CommandExit.NOT_STARTED
    assert "TOWPATH_WORKER_METRICS_PORT must be a port" in capsys.readouterr().err


def test_flags_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parser().parse_args(["a:b", "c:d", "--slots", "7"])
    assert (arguments.targets, arguments.slots) == (["a:b", "c:d"], 7)
    for flags in (["--slots", "0"], ["--slots", "x"], ["--log-level", "loud"]):
        with pytest.raises(SystemExit) as caught:
            main(["a:b", *flags])
        assert caught.value.code == CommandExit.USAGE
    assert "no number of slots" in capsys.readouterr().err


def test_every_change_of_a_python_file_is_seen_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "sub/c.py", "notes.txt", ".venv/d.py", "__pycache__/e.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
    before = look([tmp_path])
    assert sorted(path.name for path in before) == ["a.py", "b.py", "c.py"]
    assert changed(before, look([tmp_path])) == []
    (tmp_path / "a.py").write_text("22")
    os.utime(tmp_path / "sub" / "c.py", ns=(1, 1))
    (tmp_path / "b.py").unlink()
    (tmp_path / "new.py").touch()
    names = [path.name for path in changed(before, look([tmp_path]))]
    assert names == ["a.py", "b.py", "new.py", "c.py"]


def test_a_worker_may_be_given_more_slots_after_it_was_made() -> None:
    worker = Worker("q", slots=2)
    worker.options = worker.options.with_slots(9)
    assert worker.options.slots == 9

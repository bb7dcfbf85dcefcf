"""Every public name of the SDK says what it is."""

import inspect
from types import ModuleType

import pytest

import towpath_worker
from towpath_worker import testing, workflow

# A type alias has no docstring of its own; its module has it below the name.
ALIASES = {"Json"}


def public_members(owner: type) -> list[tuple[str, object]]:
    """The methods and properties of a class that are its own and public."""
    return [
        (name, member)
        for name, member in vars(owner).items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
    ]


def undocumented(module: ModuleType, names: list[str]) -> list[str]:
    missing: list[str] = []
    for name in names:
        value = getattr(module, name)
        if not inspect.getdoc(value):
            missing.append(name)
        if isinstance(value, type) and value.__module__.startswith("towpath_worker"):
            missing += [
                f"{name}.{m}" for m, each in public_members(value) if not inspect.getdoc(each)
            ]
    return missing


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    names = [name for name in towpath_worker.__all__ if name not in ALIASES]
    assert len(names) > 40
    assert undocumented(towpath_worker, names) == []


@pytest.mark.parametrize("module", [testing, workflow], ids=lambda module: module.__name__)
def test_so_has_every_function_of_the_public_modules(module: ModuleType) -> None:
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, type))
        and value.__module__ == module.__name__
    ]
    assert names
    assert undocumented(module, names) == []


def test_what_a_star_import_gives_is_what_is_listed() -> None:
    assert sorted(towpath_worker.__all__) == sorted(set(towpath_worker.__all__))
    assert [name for name in towpath_worker.__all__ if not hasattr(towpath_worker, name)] == []

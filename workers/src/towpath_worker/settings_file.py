"""The settings file that the command line and the engine read, as far as a connection needs it.

TOML with the names of the variables in lower case, without `TOWPATH_`: `nats_url = "…"`. What else
it holds is the engine's, which alone checks it.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path


def read_settings_file(path: str, variables: Iterable[str]) -> dict[str, str]:
    """The values of those `TOWPATH_…` variables that the file sets, as text.

    Raises ValueError when it cannot be read, is no TOML, or has something else than text or a flag
    for one of them; the message names the file and the setting, and no value.
    """
    try:
        content = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise ValueError(
            f"the settings file {path} of TOWPATH_CONFIG cannot be read: {error.strerror}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"the settings file {path} of TOWPATH_CONFIG is no TOML: {error}"
        ) from error
    found: dict[str, str] = {}
    for variable in variables:
        name = variable.removeprefix("TOWPATH_").lower()
        value: object = content.get(name)
        if isinstance(value, bool):
            found[variable] = str(value).lower()
        elif isinstance(value, str):
            found[variable] = value
        elif value is not None:
            raise ValueError(f"{name} in the settings file {path} must be text")
    return found

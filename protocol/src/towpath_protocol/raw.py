"""User values inside messages: JSON text that is carried and not read."""

from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    OptionalRaw = Raw | None
else:
    # msgspec decodes `Raw | None` as null only. A field of type Raw with the default None does
    # what is meant: absent gives None, anything else (null, too) the text of the value.
    OptionalRaw = Raw
"""A value that may be absent. The JSON value null is not absence: it is `Raw(b"null")`."""


def null() -> Raw:
    """The JSON value null: what most absent user values mean."""
    return Raw(b"null")


def forget_null(message: Struct, name: str) -> None:
    """In a `__post_init__`: make a null of this field an absence, where they mean the same."""
    value: object = getattr(message, name)
    if isinstance(value, Raw) and bytes(value).strip() == b"null":
        force_setattr(message, name, None)

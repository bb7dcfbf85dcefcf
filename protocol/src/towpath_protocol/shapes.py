"""Field types that several requests share, with their bounds."""

from typing import Annotated, Final

from msgspec import Meta

TAGS_MAX: Final = 32
"""Tags of a run."""
TAG_LENGTH_MAX: Final = 128
"""Characters of a tag."""
PAGE_MAX: Final = 1_000
WAIT_MS_MAX: Final = 30_000
TEXT_LENGTH_MAX: Final = 512
"""Characters of a free text of a person or program."""
MESSAGE_ID_LENGTH_MAX: Final = 256
"""Characters of a message id or request id, in a body or a header."""
PATH_LENGTH_MAX: Final = 1_024
"""Characters of a step's path."""

Tag = Annotated[str, Meta(min_length=1, max_length=TAG_LENGTH_MAX)]
Tags = Annotated[tuple[Tag, ...], Meta(max_length=TAGS_MAX)]
PageLimit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
"""Free text of a person or program: who, why, an id of theirs."""
MessageId = Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_LENGTH_MAX)]
StepPath = Annotated[str, Meta(min_length=1, max_length=PATH_LENGTH_MAX)]
"""Path of a step from the top: `ship`, `notify/email/send`, `lines[3]/pack`."""

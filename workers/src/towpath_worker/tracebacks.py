"""Tracebacks as the person wants them who wrote the task: they begin at that person's code."""

import contextlib
import importlib
import os
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

_OURS: Final = (
    f"{Path(__file__).parent}{os.sep}",
    importlib.__file__,
    contextlib.__file__,
    "<frozen importlib",
)
"""Where code lies that only leads to theirs: the SDK, and what it calls them through."""


def traceback_text(error: BaseException) -> str:
    """The exception, its frames from the first of user code on, and what it was raised from.

    Where no frame is user code, as in a fault of the SDK's, all of them are shown.
    """
    frames = error.__traceback__
    theirs = user_frames(frames)
    return "".join(traceback.format_exception(type(error), error, theirs or frames))


def user_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from its first frame of user code on; None when it has none."""
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames

"""The run's metadata and the patches of its workers: RFC 7396, JSON Merge Patch."""

from typing import Final, TypeGuard

from towpath_engine.core import failures
from towpath_engine.core.model import Failure
from towpath_protocol import codec

# The door refuses deeper JSON; this bound holds for whatever comes another way.
DEPTH_MAX: Final = 64


class MetadataRefused(Exception):  # noqa: N818 - named for what happened
    """The patch can't be applied; `failure` is what the attempt fails with."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def merged(metadata: bytes, patch: bytes, *, bytes_max: int) -> bytes:
    """`metadata` with `patch` merged into it, as JSON text.

    Raises MetadataRefused when the patch is no object (metadata always is one), when it is nested
    too deep, or when the result has more than `bytes_max` bytes.
    """
    changed: object = codec.loads(patch)
    if not _is_object(changed):
        raise MetadataRefused(
            Failure(
                type=failures.INVALID_OUTPUT,
                message="metadata must be an object: a patch of the run's metadata",
            )
        )
    result = codec.dumps(_merge(codec.loads(metadata), changed, DEPTH_MAX))
    if len(result) > bytes_max:
        raise MetadataRefused(failures.too_large("the metadata", len(result), bytes_max))
    return result


def _merge(target: object, patch: dict[str, object], depth: int) -> dict[str, object]:
    if depth == 0:
        raise MetadataRefused(
            Failure(type=failures.INVALID_OUTPUT, message="metadata is nested too deep")
        )
    result = dict(target) if _is_object(target) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif _is_object(value):
            result[name] = _merge(result.get(name), value, depth - 1)
        else:
            result[name] = value
    return result

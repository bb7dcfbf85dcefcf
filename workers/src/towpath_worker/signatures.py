"""Which functions are tasks: what they take, what they return, and why one is refused.

Everything that can be known about a function is found out when it is registered, so that a worker
that starts can run all its tasks. A refusal names the function and says how to mend it.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Union

from msgspec import Struct

from towpath_protocol.errors import ProtocolError
from towpath_protocol.ids import check_task
from towpath_worker.context import Context, ProcessContext
from towpath_worker.conversion import (
    Converter,
    UnsupportedTypeError,
    check_output,
    converter,
    says_nothing,
)
from towpath_worker.values import InvalidValueError, to_json

DEFAULT_BYTES_MAX: Final = 256 * 1024


class RegistrationError(Exception):
    """A function cannot be registered as a task. The message names it and says what to change."""


class TaskTypeError(RegistrationError, TypeError):
    """The function is no task: its parameters, its return type or its kind."""


class TaskNameError(RegistrationError, ValueError):
    """The name of the task is not a legal one, or it is taken."""


class RunIn(StrEnum):
    """Where a task runs."""

    LOOP = "loop"
    """`async def`: in the event loop of the worker."""
    THREAD = "thread"
    """A plain function: in a thread of its own."""
    PROCESS = "process"
    """A plain function, in a process of its own: for work that needs a processor, or native code
    that may crash."""


class Task(Struct, frozen=True):
    """A registered task. `input_name` None: it takes no input; `context_name` None: no context.

    `state_type` is what its `Context[...]` names, for the check when the worker starts.
    `positional` are the parameters that have no keyword, in order.
    """

    name: str
    function: Callable[..., object]
    run_in: RunIn
    input_name: str | None = None
    input_type: object = None
    convert: Converter | None = None
    has_default: bool = False
    context_name: str | None = None
    state_type: type | None = None
    positional: tuple[str, ...] = ()

    @property
    def is_async(self) -> bool:
        """True for `async def`."""
        return self.run_in is RunIn.LOOP


def check_name(name: str) -> None:
    """Raises TaskNameError when this is no name of a task."""
    try:
        check_task(name)
    except ProtocolError as error:
        raise TaskNameError(
            f"{name!r} cannot be the name of a task: {error}; write @worker.task('shop.charge')"
        ) from error


def describe(name: str, function: Callable[..., object], run_in: str | None = None) -> Task:
    """What a function takes, and where it runs. Raises TaskTypeError when it is no task."""
    where = f"the task {name!r} ({_place(function)})"
    place = _run_in(where, function, run_in)
    hints = _hints(where, function)
    found: dict[str, inspect.Parameter] = {}
    state_type: type | None = None
    for parameter in _parameters(where, function):
        role, state = _role(parameter, hints.get(parameter.name))
        if role in found:
            raise TaskTypeError(
                f"{where} takes more than an input and a Context: put what it needs into one "
                "input, a Struct or a dataclass"
            )
        if role == "context":
            state_type = state
            _check_context(where, hints.get(parameter.name), place)
        found[role] = parameter
    _check_output(where, hints.get("return"))
    given, ctx = found.get("input"), found.get("context")
    input_type = None if given is None else hints.get(given.name)
    return Task(
        name=name,
        function=function,
        run_in=place,
        input_name=None if given is None else given.name,
        input_type=input_type,
        convert=None if given is None else _converter(where, input_type),
        has_default=given is not None and _has_default(where, given),
        context_name=None if ctx is None else ctx.name,
        state_type=state_type,
        positional=tuple(each.name for each in found.values() if each.kind is each.POSITIONAL_ONLY),
    )


def _run_in(where: str, function: Callable[..., object], wanted: str | None) -> RunIn:
    if not callable(function) or isinstance(function, type):
        raise TaskTypeError(f"{where} is no function; a class cannot be a task, its method can")
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TaskTypeError(
            f"{where} is a generator; return one value, and tell how far it is by "
            "context.progress(value)"
        )
    is_async = inspect.iscoroutinefunction(code)
    if wanted is None:
        return RunIn.LOOP if is_async else RunIn.THREAD
    if wanted not in list(RunIn) or (wanted == "loop") != is_async:
        kind = "`async def`, which runs in the event loop" if is_async else "a plain function"
        raise TaskTypeError(
            f"{where} cannot run in {wanted!r}: it is {kind}; a plain function runs in a 'thread' "
            "or a 'process', `async def` takes no run_in"
        )
    if wanted == "process" and ("<" in _place(function) or not inspect.isfunction(function)):
        raise TaskTypeError(
            f"{where} cannot run in a process: define it at the top of a module, where the "
            "process finds it by its name"
        )
    return RunIn(wanted)


def _code_of(function: Callable[..., object]) -> Callable[..., object]:
    """The function behind a partial, a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function) or inspect.ismethod(function):
        return function
    # The method of an object that can be called; a builtin is its own.
    method = getattr(function, "__call__", function)  # noqa: B004 -- the method itself is wanted
    return method if inspect.ismethod(method) else function


def _parameters(where: str, function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TaskTypeError(f"{where} does not tell its parameters; wrap it in a `def`") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TaskTypeError(
                f"{where} must not take *args or **kwargs: name the one input that it takes"
            )
    return parameters


def _role(parameter: inspect.Parameter, annotation: object) -> tuple[str, type | None]:
    """`input` or `context`, and the type of the state that a context names."""
    annotation = _not_optional(annotation)
    origin = typing.get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, ProcessContext):
        (state, *_) = typing.get_args(annotation) or (None,)
        return "context", state if isinstance(state, type) else None
    if says_nothing(annotation) and parameter.name in ("ctx", "context"):
        return "context", None
    return "input", None


def _not_optional(annotation: object) -> object:
    """`Context | None`, as a function that is called in other ways too may say, is a context."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        rest = [each for each in typing.get_args(annotation) if each is not types.NoneType]
        if len(rest) == 1:
            return rest[0]
    return annotation


def _check_context(where: str, annotation: object, place: RunIn) -> None:
    origin = typing.get_origin(_not_optional(annotation)) or _not_optional(annotation)
    if place is RunIn.PROCESS and isinstance(origin, type) and issubclass(origin, Context):
        raise TaskTypeError(
            f"{where} runs in a process, where there is no state and no connection: annotate its "
            "context as ProcessContext"
        )


def _has_default(where: str, parameter: inspect.Parameter) -> bool:
    if parameter.default is parameter.empty:
        return False
    try:
        to_json(parameter.default, bytes_max=DEFAULT_BYTES_MAX, field=parameter.name)
    except InvalidValueError as error:
        raise TaskTypeError(
            f"{where} has a default that no input could be ({error}): give a value that JSON "
            "can carry, or none"
        ) from error
    return True


def _converter(where: str, input_type: object) -> Converter:
    try:
        return converter(input_type)
    except UnsupportedTypeError as error:
        raise TaskTypeError(f"the input type of {where}: {error}") from error


def _check_output(where: str, output_type: object) -> None:
    try:
        check_output(output_type)
    except UnsupportedTypeError as error:
        raise TaskTypeError(f"the return type of {where}: {error}") from error


def _hints(where: str, function: Callable[..., object]) -> dict[str, object]:
    code = _code_of(function)
    # Types that are local to the place of definition are found through the closure alone; the
    # recursive aliases of JSON name themselves.
    local: dict[str, object] = {"JsonValue": object, "JsonLike": object, "Rich": object}
    if inspect.isfunction(code):
        local.update(inspect.getclosurevars(code).nonlocals)
    try:
        return typing.get_type_hints(code, localns=local, include_extras=True)
    except NameError as error:
        raise TaskTypeError(
            f"{where} has an annotation that cannot be resolved ({error}): define the type at "
            "module level, outside of `if TYPE_CHECKING`"
        ) from error
    except TypeError:
        return {}  # a builtin, which has no annotations


def _place(function: Callable[..., object]) -> str:
    code = _code_of(function) if callable(function) else function
    name = getattr(code, "__qualname__", repr(code))
    return f"{getattr(code, '__module__', '')}.{name}".lstrip(".")

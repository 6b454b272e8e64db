"""A program under test that answers calls, one at a time.

It shares its process with the program, so what it says is a claim about outputs and nothing more: the program can
forge an answer only by knowing it, and whether it is right is decided elsewhere. Each answer repeats the number of
its request, which nobody could know before the request came.
"""

import builtins
import operator
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from . import confine, frames, values

MAX_REQUEST_BYTES = 64 * 1024**2
FILE = "program.py"
SOLUTION = "Solution"
_ENDINGS = (SystemExit, KeyboardInterrupt, GeneratorExit)

OPERATIONS: dict[str, Callable[..., Any]] = {
    "name": lambda target: target,
    "call": lambda target, *args, **kwargs: target(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "contains": operator.contains,
    "isinstance": isinstance,
    "iter": iter,
    "next": next,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target: type(target).__exit__(target, None, None, None),
}
for _name in ("getitem", "setitem", "delitem", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert"):
    OPERATIONS[_name] = getattr(operator, _name)
for _name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "and_", "or_", "xor"):
    OPERATIONS[_name] = getattr(operator, _name)


class Host:
    """Holds the program's namespace and the objects that the other side has handles of."""

    def __init__(self, stream: frames.Stream, entry: str, *, keeps_objects: bool) -> None:
        self.stream = stream
        self.entry = entry
        self.keeps_objects = keeps_objects
        self.module = types.ModuleType("program")
        self.objects: dict[int, Any] = {}

    def load(self, source: str) -> dict[str, Any]:
        """Run the program's text. Returns the message that says whether it worked."""
        sys.modules["program"] = self.module
        self.module.__dict__["__file__"] = FILE
        stage = "syntax"
        try:
            code = compile(source, FILE, "exec")
            stage = "load"
            exec(code, self.module.__dict__)  # noqa: S102  what this process is for
        except BaseException as error:  # noqa: BLE001  the border: reported as data
            return {"failed": stage, "text": describe(error)}
        if self.entry not in self.module.__dict__ and not hasattr(self.module.__dict__.get(SOLUTION), self.entry):
            return {"failed": "entry", "text": f"the program defines no {self.entry}"}
        return {"ready": True}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks and say what came of it."""
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            target = self.target(request["target"])
            args = [values.decode(item, self.unwrap) for item in request["args"]]
            kwargs = {name: values.decode(item, self.unwrap) for name, item in request["kwargs"].items()}
            result = OPERATIONS[request["op"]](target, *args, **kwargs)
            reply["value"] = values.encode(result, self.wrap if self.keeps_objects else None)
            if result is None and self.keeps_objects:
                reply["args"] = self.changed(request["args"], args)
        except _ENDINGS as error:
            reply["ended"] = describe(error)
        except values.NotPlainError as error:
            reply["unplain"] = str(error)
        except BaseException as error:  # noqa: BLE001  the border: reported as data
            reply["raised"] = [kind.__name__ for kind in type(error).__mro__]
            reply["text"] = describe(error)
            reply["message"] = _text(error)
        return reply

    def target(self, target: Any) -> Any:
        """What a request is about: an object by its handle, or a name of the program.

        The entry point may be a method of a class ``Solution``, as contest sites have it: a fresh object each time.
        """
        if isinstance(target, int):
            return self.objects[target]
        if target == self.entry and target not in self.module.__dict__:
            return getattr(self.module.__dict__[SOLUTION](), target)
        return self.module.__dict__[target]

    def changed(self, before: list[Any], args: list[Any]) -> list[Any]:
        """The arguments after the call, None for those that it left as they were."""
        after = [values.encode(item, self.wrap) for item in args]
        return [None if old == new else {"now": new} for old, new in zip(before, after, strict=True)]

    def wrap(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Callback):
            return {"h": {"callback": value.number}}
        self.objects[id(value)] = value  # kept alive, so that the id stays its own
        is_exception = isinstance(value, type) and issubclass(value, BaseException)
        kind = "exception" if is_exception else "class" if isinstance(value, type) else "object"
        return {"h": {"id": id(value), "kind": kind, "type": type(value).__name__}}

    def unwrap(self, handle: Any) -> Any:
        if "callback" in handle:
            return Callback(self, handle["callback"])
        return self.objects[handle["id"]]


class Callback:
    """A function of the test text that the program was handed."""

    def __init__(self, host: Host, number: int) -> None:
        self._host, self.number = host, number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        host = self._host
        trees = [values.encode(item, host.wrap) for item in args]
        named = {name: values.encode(item, host.wrap) for name, item in kwargs.items()}
        host.stream.send({"callback": self.number, "args": trees, "kwargs": named})
        while "returned" not in (message := host.stream.receive()):
            if "raised" in message:
                raise builtin_exception(message["raised"])(message["message"])
            host.stream.send(host.answer(message))  # the function calls the program in its turn
        return values.decode(message["returned"], host.unwrap)


def builtin_exception(names: list[str]) -> type[Exception]:
    """The first of the names that is a built-in exception."""
    for name in names:
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
    return Exception


def describe(error: BaseException) -> str:
    """The exception in one line, with the line of the program."""
    import traceback  # only programs that fail pay for it

    try:
        text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1][:300]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    except BaseException:  # noqa: BLE001  even its text is the program's
        return type(error).__name__
    return f"{text} (line {lines[-1]})" if lines else text


def _text(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:  # noqa: BLE001  even its text is the program's
        return ""


def run(_request: dict[str, Any]) -> None:
    """Load the program that comes on the channel, then answer until the other side hangs up."""
    stream = frames.Stream(confine.CHANNEL, MAX_REQUEST_BYTES)
    try:
        first = stream.receive()
        program = Host(stream, first["entry"], keeps_objects=first["keeps_objects"])
        stream.send(program.load(first["source"]))
        while True:
            stream.send(program.answer(stream.receive()))
    except frames.HungUpError:
        os._exit(0)

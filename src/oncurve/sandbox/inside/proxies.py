"""What a test text sees of the program's objects: handles that ask the other process, by stated rules.

Plain data arrives as plain data. Anything else is a ``Handle``:

- it never equals plain data, and never hears what it is compared with;
- where a class is tested (its name begins with a capital, or ``setup`` defines a class), what its objects say through
  ``==``, ordering and arithmetic is asked for among the program's own objects, and ``in`` for any member; everywhere
  else ``==`` is identity, ``in`` goes through the members, and arithmetic is refused;
- calls, attributes, subscripts, iteration, ``len``, ``bool`` and ``str`` are asked for.
"""

import os
import types
from collections.abc import Iterator
from typing import Any

from . import frames, host, values

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


class ProgramEndedError(BaseException):
    """The program ended or broke the protocol. Not an ``Exception``: no test text swallows it."""


class Link:
    """Asks the program's process and waits for its answer."""

    def __init__(self, fd: int, max_bytes: int) -> None:
        self._stream = frames.Stream(fd, max_bytes)
        self.num_calls = 0
        self.tests_a_class = False
        """Whether the objects of a class are what is tested; the tests say so, never the program."""
        self.functions: list[Any] = []
        self.exceptions: dict[str, type[Exception]] = {}

    def load(self, first: dict[str, Any]) -> dict[str, Any]:
        """Hand over the program's text. Returns what its host says about it."""
        return self._exchange(first)

    def ask(self, op: str, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Have an operation done in the program's process.

        Raises:
            ProgramEndedError: the process ended, or what it sent is no answer.
            Exception: of the type that the program raised, or the nearest built-in one.
        """
        self.num_calls += op == "call"
        name = target if isinstance(target, str) else handle_of(target)["id"]
        request = {
            "id": os.urandom(8).hex(),
            "op": op,
            "target": name,
            "args": [values.encode(item, self.wrap) for item in args],
            "kwargs": {key: values.encode(item, self.wrap) for key, item in kwargs.items()},
        }
        reply = self._exchange(request)
        if reply.get("id") != request["id"]:
            raise ProgramEndedError("the program broke the protocol: an answer to no question")
        return self._outcome(reply, args, behaves=isinstance(target, Handle) and target._behaves)

    def name(self, name: str) -> Any:
        """What the program defines under a name of its own.

        Raises:
            KeyError: nothing.
        """
        found = self.ask("name", name)
        if not isinstance(found, Handle):
            return found
        if handle_of(found)["kind"] == "exception":
            self.exceptions[name] = type(name, (Exception,), {})
            return self.exceptions[name]
        return Handle(self, handle_of(found), behaves=self.tests_a_class)

    def _outcome(self, reply: dict[str, Any], args: tuple[Any, ...], *, behaves: bool) -> Any:
        if "raised" in reply:
            raise self._exception(reply)
        if "value" not in reply:
            raise ProgramEndedError(f"the program raised {reply.get('ended', reply.get('unplain', 'nothing'))}"[:400])
        try:
            result = values.decode(reply["value"], lambda handle: self.unwrap(handle, behaves=behaves))
            if result is None:  # as in Python's own methods, what changes its argument returns nothing
                for original, change in zip(args, reply.get("args", ()), strict=False):
                    if change is not None:
                        update(original, values.decode(change["now"], self.unwrap))
        except ValueError as error:
            raise ProgramEndedError(f"the program broke the protocol: {error}") from None
        return result

    def _exception(self, reply: dict[str, Any]) -> Exception:
        names = [str(name) for name in reply["raised"]]
        kind = next((self.exceptions[name] for name in names if name in self.exceptions), None)
        error = (kind or host.builtin_exception(names))(str(reply.get("message", "")))
        error.__dict__["program_said"] = str(reply.get("text", ""))[:300]
        return error

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            self._stream.send(message)
            while "callback" in (reply := self._receive()):
                self._stream.send(self._called_back(reply))
        except frames.HungUpError:
            raise ProgramEndedError("the program ended before it answered") from None
        return reply

    def _receive(self) -> dict[str, Any]:
        try:
            reply = self._stream.receive()
        except (ValueError, RecursionError) as error:
            raise ProgramEndedError(f"the program broke the protocol: {error}") from None
        if not isinstance(reply, dict):
            raise ProgramEndedError("the program broke the protocol: not a message")
        return reply

    def _called_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """The program calls a function that the test text handed it."""
        try:
            args = [values.decode(item, self.unwrap) for item in message["args"]]
            kwargs = {str(name): values.decode(item, self.unwrap) for name, item in message["kwargs"].items()}
            return {"returned": values.encode(self.functions[int(message["callback"])](*args, **kwargs), self.wrap)}
        except Exception as error:  # noqa: BLE001  the border: the program gets it as its own
            return {"raised": [kind.__name__ for kind in type(error).__mro__], "message": str(error)[:1000]}

    def wrap(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Handle):
            return {"h": handle_of(value)}
        if not isinstance(value, _FUNCTIONS):
            raise UnsendableError(
                f"the tests hand the program a {type(value).__name__}, which cannot be sent to another process"
            )
        self.functions.append(value)
        return {"h": {"callback": len(self.functions) - 1}}

    def unwrap(self, handle: Any, *, behaves: bool = False) -> Any:
        if "callback" in handle:
            return self.functions[int(handle["callback"])]
        known = {"id": int(handle["id"]), "kind": str(handle["kind"]), "type": str(handle["type"])}
        return Handle(self, known, behaves=behaves)


class UnsendableError(BaseException):
    """The tests need something that cannot cross. Not the program's fault, so no test text may swallow it."""


def update(original: Any, now: Any) -> None:
    """Change an argument of the test text as the program changed its copy in place."""
    if isinstance(original, list) and isinstance(now, list):
        original[:] = now
    elif isinstance(original, dict | set) and type(now) is type(original):
        original.clear()
        original.update(now)
    elif isinstance(original, bytearray) and isinstance(now, bytearray):
        original[:] = now


def handle_of(proxy: "Handle") -> dict[str, Any]:
    handle: dict[str, Any] = object.__getattribute__(proxy, "_handle")
    return handle


class Handle:
    """An object that stays in the program's process."""

    __slots__ = ("_behaves", "_handle", "_link")

    def __init__(self, link: Link, handle: dict[str, Any], *, behaves: bool) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_handle", handle)
        object.__setattr__(self, "_behaves", behaves)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.ask("call", self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._link.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("setattr", self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return False
        if handle_of(self)["id"] == handle_of(other)["id"]:
            return True
        return self._behaves and other._behaves and self._link.ask("eq", self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(handle_of(self)["id"])

    def __contains__(self, member: Any) -> bool:
        if self._behaves:
            return self._link.ask("contains", self, member) is True
        return any(item is member or item == member for item in self)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Handle) and self._link.ask("isinstance", value, self) is True

    def __iter__(self) -> Iterator[Any]:
        members = self._link.ask("iter", self)
        while True:
            try:
                member = self._link.ask("next", members)
            except StopIteration:
                return
            yield member

    def __next__(self) -> Any:
        return self._link.ask("next", self)

    def __len__(self) -> int:
        return int(self._link.ask("len", self))

    def __bool__(self) -> bool:
        return self._link.ask("bool", self) is True

    def __str__(self) -> str:
        return str(self._link.ask("str", self))

    def __repr__(self) -> str:
        return str(self._link.ask("repr", self))

    def __getitem__(self, key: Any) -> Any:
        return self._link.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._link.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._link.ask("delitem", self, key)

    def __enter__(self) -> Any:
        return self._link.ask("enter", self)

    def __exit__(self, *_: object) -> None:
        self._link.ask("exit", self)


def _among_own(op: str) -> Any:
    def method(self: Handle, *others: Any) -> Any:
        if not self._behaves or not all(isinstance(other, Handle) for other in others):
            return NotImplemented
        return self._link.ask(op, self, *others)

    return method


for _op in ("lt", "le", "gt", "ge", "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "xor"):
    setattr(Handle, f"__{_op}__", _among_own(_op))
for _op in ("and", "or"):
    setattr(Handle, f"__{_op}__", _among_own(f"{_op}_"))
for _op in ("neg", "abs", "invert"):
    setattr(Handle, f"__{_op}__", _among_own(_op))

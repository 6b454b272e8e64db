"""Ask a chat endpoint, with a deadline for each attempt, retries and a limit on what is in flight.

Standard library only. Redirects are not followed and no proxy is used: the key goes to the host that was named.
"""

import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from oncurve.types import ConfigError
from oncurve.verify.items import one_line
from oncurve.verify.judges.settings import EndpointSettings

Messages = Sequence[Mapping[str, str]]

_TRY_AGAIN = frozenset((408, 409, 425, 429))
_LONGEST_PAUSE_S = 60.0


class NoReplyError(Exception):
    """No usable reply. ``cause``: ``timeout``, ``unreachable``, ``server_error``, ``refused``, ``bad_reply``."""

    def __init__(self, cause: str, detail: str, *, may_try_again: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(detail)
        self.cause = cause
        self.may_try_again = may_try_again
        self.pause_s = pause_s


class ChatClient:
    """Sends messages and returns the text of the reply. Safe to use from several threads.

    Raises:
        ConfigError: ``api_key_env`` names a variable that is not set, or holds what is no key.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._address = urlsplit(settings.url)
        self._key = _read_key(settings.api_key_env)
        self._slots = threading.BoundedSemaphore(settings.max_concurrent)

    def ask_all(self, conversations: Sequence[Messages]) -> list[str | NoReplyError]:
        """A reply or what went wrong for each conversation, in their order."""
        if not conversations:
            return []
        workers = min(self.settings.max_concurrent, len(conversations))
        executor = ThreadPoolExecutor(workers, thread_name_prefix="oncurve-judge")
        try:
            return list(executor.map(self._ask_or_error, conversations))
        finally:  # after Ctrl-C nothing new is asked, and nobody waits for what is in flight
            executor.shutdown(wait=False, cancel_futures=True)

    def ask(self, messages: Messages) -> str:
        """The reply to one conversation.

        Raises:
            NoReplyError: no attempt brought one. Its text never holds the key.
        """
        for attempt in range(1, self.settings.attempts + 1):
            try:
                with self._slots:
                    return self._attempt(messages)
            except NoReplyError as error:
                if not error.may_try_again or attempt == self.settings.attempts:
                    raise
                time.sleep(pause_after(attempt, self.settings.backoff_s, error.pause_s))
        raise NoReplyError("unreachable", "no attempt was made")

    def _ask_or_error(self, messages: Messages) -> str | NoReplyError:
        try:
            return self.ask(messages)
        except NoReplyError as error:
            return error

    def _attempt(self, messages: Messages) -> str:
        settings = self.settings
        body = json.dumps(
            {
                "model": settings.model,
                "messages": list(messages),
                "temperature": 0.0,
                "max_tokens": settings.max_reply_tokens,
            }
        )
        status, pause, data = self._exchange(body.encode("ascii"))
        if status != http.client.OK:
            raise self._refusal(status, pause, data)
        return _content(data)

    def _exchange(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, ``Retry-After`` and body of one request, cut off at the deadline whatever the server does."""
        late = threading.Event()
        connection = self._connection()
        try:
            connection.connect()
            timer = threading.Timer(self.settings.timeout_s, _cut, [connection.sock, late])
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", f"{self._address.path}/chat/completions", body, self._headers())
                response = connection.getresponse()
                data = response.read(self.settings.max_reply_bytes + 1)
            finally:
                timer.cancel()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                detail = f"no reply within {self.settings.timeout_s:g} s"
                raise NoReplyError("timeout", detail, may_try_again=True) from None
            detail = self._safe(f"{self.settings.url}: {type(error).__name__}: {error}")
            raise NoReplyError("unreachable", detail, may_try_again=True) from None
        finally:
            connection.close()
        if late.is_set():
            raise NoReplyError("timeout", f"no reply within {self.settings.timeout_s:g} s", may_try_again=True)
        if len(data) > self.settings.max_reply_bytes:
            raise NoReplyError("bad_reply", f"the reply has more than {self.settings.max_reply_bytes} bytes")
        return response.status, response.getheader("Retry-After", ""), data

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self.settings.timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=self.settings.timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        return headers | {"Authorization": f"Bearer {self._key}"} if self._key else headers

    def _refusal(self, status: int, pause: str, data: bytes) -> NoReplyError:
        said = self._safe(" ".join(data[:2000].decode("utf-8", "replace").split()))
        detail = f"HTTP {status}: {one_line(said, 160)}"
        if status in _TRY_AGAIN or status >= http.client.INTERNAL_SERVER_ERROR:
            pause_s = float(pause) if pause.isascii() and pause.isdecimal() and len(pause) < 6 else 0.0
            return NoReplyError("server_error", detail, may_try_again=True, pause_s=pause_s)
        return NoReplyError("refused", detail)

    def _safe(self, text: str) -> str:
        """The text without the key, which a server may repeat."""
        return text.replace(self._key, "***") if self._key else text


def pause_after(attempt: int, backoff_s: float, asked_s: float) -> float:
    """Seconds to wait: the backoff, doubled with each attempt, or what the server asked for; at most a minute.

    Args:
        attempt: the attempt that failed, from 1.
        backoff_s: pause after the first.
        asked_s: the server's ``Retry-After``, 0 without one.
    """
    return min(max(backoff_s * 2.0 ** (attempt - 1), asked_s), _LONGEST_PAUSE_S)


def _read_key(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(
            f"endpoint.api_key_env names the environment variable {name}, which is not set. Set it, or leave "
            "api_key_env empty where the server wants no key."
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the environment variable {name} holds a line end or other characters that no key has")
    return key


def _cut(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _content(data: bytes) -> str:
    try:
        found: Any = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise NoReplyError("bad_reply", f"the reply is no chat completion ({type(error).__name__})") from None
    if not isinstance(found, str):
        raise NoReplyError("bad_reply", "the reply has no text")
    return found

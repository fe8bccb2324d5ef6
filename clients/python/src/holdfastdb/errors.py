"""Errors: a class for each code of the server. docs/errors.md of Holdfast says what to do about each."""

from __future__ import annotations

import email.utils
import json
import math
import time
from collections.abc import Mapping


class HoldfastError(Exception):
    """What the server has refused, or why it could not be asked."""

    def __init__(
        self,
        op: str,
        *,
        status: int = 0,
        code: str = "",
        detail: str = "",
        request: str = "",
        retry_after: float = 0.0,
        operation: int | None = None,
        expected: int | None = None,
        actual: int | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.op = op
        """What was to be done: "message write"."""
        self.status = status
        """The status of HTTP, 0 if there was no answer."""
        self.code = code
        """The code of the server, "" if the answer has none."""
        self.detail = detail
        self.request = request
        """The id under which the server's log has more."""
        self.retry_after = retry_after
        """How long the server asks to wait before the next try, in seconds."""
        self.operation = operation
        """Which operation of a transaction was refused, from 0."""
        self.expected = expected
        """The version or position of a conflict that was named, and in `actual` that which is there."""
        self.actual = actual
        self.unknown = False
        """A try was made whose answer was lost: it may have been done all the same."""
        self.__cause__ = cause
        super().__init__(self._text())

    def _text(self) -> str:
        text = self.detail or self.code.replace("_", " ")
        if self.__cause__ is not None:
            text = str(self.__cause__) or type(self.__cause__).__name__
            text += f": {self.detail}" if self.detail else ""
        elif not self.code:
            text = f"the server answered with status {self.status}" + (f": {self.detail}" if self.detail else "")
        if self.code == "unauthorized":
            text += "; check the token"
        if self.request and self.code in ("internal", "corrupt", "poisoned"):
            text += f"; the server's log has more under request {self.request}"
        return f"{self.op}: {text}"


class ConnectionFailed(HoldfastError):
    """There was no answer, or none of a Holdfast server: the error of the connection is its cause."""


class BadRequest(HoldfastError):
    """The request is malformed, or makes no sense."""


class LevelNotGiven(HoldfastError):
    """The engine does not give that level."""


class Unauthorized(HoldfastError):
    """There is no token, or one that is not known, revoked or expired."""


class Forbidden(HoldfastError):
    """The token's role or namespace does not allow it."""


class NotFound(HoldfastError):
    """There is no such thing."""


class NoNamespace(NotFound):
    """There is no such namespace."""


class MethodNotAllowed(HoldfastError):
    """The address does not take such a request."""


class Exists(HoldfastError):
    """There is a namespace or task with that id already."""


class Conflict(HoldfastError):
    """The version of the stream, or the last position of the log, is another one: `expected`, `actual`."""


class IdTaken(HoldfastError):
    """The id is known with another content."""


class PositionTaken(HoldfastError):
    """An import names a position that something else has."""


class Ended(HoldfastError):
    """The stream was ended for ever."""


class WrongState(HoldfastError):
    """The task's state does not allow it."""


class Locked(HoldfastError):
    """It is in use."""


class LeaseLost(HoldfastError):
    """Another one may have the task or message now: drop the work."""


class Cancelled(HoldfastError):
    """The task was cancelled: drop the work."""


class Truncated(HoldfastError):
    """The position was removed."""


class Ahead(HoldfastError):
    """A position that was never reached in this history: begin anew with what is there."""


class TooLarge(HoldfastError):
    """Split the request."""


class WrongEncoding(HoldfastError):
    """Bodies are not compressed."""


class InternalError(HoldfastError):
    """A fault of the server."""


class Corrupt(HoldfastError):
    """The server's data is damaged."""


class NotImplementedByEngine(HoldfastError):
    """Not with this engine."""


class DiskFull(HoldfastError):
    """The server's disk is full; nothing was written."""


class Poisoned(HoldfastError):
    """Writing has ended, and the outcome is unknown: restart the server, then repeat with the same ids."""


class Unavailable(HoldfastError):
    """The server cannot do it now."""


class TooMany(Unavailable):
    """There were too many requests."""


class Stopping(Unavailable):
    """The server is stopping."""


class Fenced(Unavailable):
    """Another process owns the data now, or may."""


CLASSES: Mapping[str, type[HoldfastError]] = {
    "bad_request": BadRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "no_namespace": NoNamespace,
    "method": MethodNotAllowed,
    "exists": Exists,
    "conflict": Conflict,
    "id_taken": IdTaken,
    "position_taken": PositionTaken,
    "ended": Ended,
    "state": WrongState,
    "locked": Locked,
    "lease_lost": LeaseLost,
    "cancelled": Cancelled,
    "truncated": Truncated,
    "ahead": Ahead,
    "too_large": TooLarge,
    "encoding": WrongEncoding,
    "level": LevelNotGiven,
    "too_many": TooMany,
    "internal": InternalError,
    "corrupt": Corrupt,
    "not_implemented": NotImplementedByEngine,
    "stopping": Stopping,
    "unavailable": Unavailable,
    "fenced": Fenced,
    "poisoned": Poisoned,
    "full": DiskFull,
}
"""The class of each code."""

# What something in front of the server means by a status.
_CODES_OF_STATUS = {401: "unauthorized", 413: "too_large", 429: "too_many"}


def error_of(op: str, code: str, *, status: int = 200, detail: str = "") -> HoldfastError:
    """Makes the error of a code."""
    return CLASSES.get(code, HoldfastError)(op, status=status, code=code, detail=detail)


def answered(op: str, status: int, headers: Mapping[str, str], text: str) -> HoldfastError:
    """Makes the error of an answer that is none of success."""
    request = headers.get("X-Request-Id", "")
    after = _retry_after(headers)
    try:
        p = json.loads(text)
    except ValueError:
        p = None
    if isinstance(p, dict) and isinstance(p.get("code"), str) and p["code"]:
        return CLASSES.get(p["code"], HoldfastError)(
            op,
            status=status,
            code=p["code"],
            detail=p.get("detail", ""),
            request=p.get("request") or request,
            retry_after=after,
            operation=p.get("operation"),
            expected=p.get("expected"),
            actual=p.get("actual"),
        )
    code = _CODES_OF_STATUS.get(status, "")
    detail = "" if "<" in text else text.strip().replace("\n", " ")[:200]
    made = CLASSES[code] if code else HoldfastError
    return made(op, status=status, code=code, detail=detail, request=request, retry_after=after)


# The longest that the word of a server, or of what answers in its place, is believed, in seconds.
LONGEST_WAIT = 3600.0


def _retry_after(headers: Mapping[str, str]) -> float:
    """Reads the header, in seconds or as a date, which is by the clock of whoever has answered."""
    text = headers.get("Retry-After", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = email.utils.parsedate_to_datetime(text).timestamp()
        except ValueError:
            return 0.0
        try:
            now = email.utils.parsedate_to_datetime(headers.get("Date", "")).timestamp()
        except ValueError:
            now = time.time()
        seconds = at - now
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else 0.0

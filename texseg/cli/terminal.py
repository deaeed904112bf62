"""What reaches the terminal: texts made safe, streams that never fail, signals that end a command."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

import click

_SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, n)]

_AT_ONCE = 0.5  # seconds in which signals that follow each other are one
_PATIENCE = 2.0  # seconds in which a process must have ended


class InterruptedBySignalError(KeyboardInterrupt):
    """Ctrl-C, or a signal that ends a command in the same way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number, self.code, self.words = number, 128 + number, "interrupted"


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the body as Ctrl-C does; another one, later, ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # not by nohup
    begun: list[float] = []

    def end(number: int, frame: FrameType | None) -> None:
        if not begun:
            begun.append(time.monotonic())
            raise InterruptedBySignalError(number)
        if number in (signal.SIGINT, signal.SIGTERM) and time.monotonic() - begun[0] > _AT_ONCE:
            os._exit(128 + number)

    before = [signal.signal(number, end) for number in heard]
    try:
        yield
    except InterruptedBySignalError as interruption:
        if begun:
            threading.Thread(target=_leave, args=[interruption.code], daemon=True).start()
        raise
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)


def _leave(code: int) -> None:
    """End a process that should end by itself, and cannot: something waits for a worker that has crashed."""
    threading.main_thread().join()
    time.sleep(_PATIENCE)
    os._exit(code)


def shown(name: str | PurePath) -> str:
    """Name of a file as text, whatever bytes it consists of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """Text of one line without anything that a terminal would interpret."""
    if text.isprintable():
        return text
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line safely, whatever names it contains; where it cannot be written, it is lost."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(printable(text), err=err)


def reason_of(error: BaseException, path: Path | None = None) -> str:
    """Say in one line why something failed, without the name of the file at its beginning."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = "not enough memory; try --memory with less, such as --memory 1G, to work block by block"
    elif isinstance(error, RecursionError):
        text = "a file is too deeply nested"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    elif not isinstance(error, (OSError, ValueError, TypeError)):
        text = f"{type(error).__name__}: {text}"
    return text.removeprefix(f"{path.name}: ") if path is not None else text


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Let no message stop the work: neither one that cannot be shown nor one that cannot be written."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout, sys.stderr = (stream or nowhere for stream in before)
        for stream in filter(None, before):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")
        try:
            yield
        finally:
            for stream in filter(None, before):
                try:
                    stream.flush()
                except (OSError, ValueError):  # else Python complains about it at the very end
                    with contextlib.suppress(OSError, ValueError):
                        os.dup2(nowhere.fileno(), stream.fileno())
            sys.stdout, sys.stderr = before


class Verbs(click.Group):
    """Ends as a user expects."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command."""
        with steady_streams(), contextlib.suppress(OSError):  # of a stream that takes no help
            return super().main(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; signals end it in order, and messages are safe to print."""
        try:
            with ended_by_signals():
                return super().invoke(ctx)
        except InterruptedBySignalError as interruption:
            with contextlib.suppress(OSError):  # the terminal may be gone
                notes = getattr(interruption, "__notes__", [])
                click.echo("; ".join([f"texseg: {interruption.words}", *notes]), err=True)
            ctx.exit(interruption.code)
        except click.ClickException as error:
            error.__dict__["message"] = printable(error.message)
            raise
        except (MemoryError, RecursionError, OSError, ValueError, TypeError) as error:
            say(f"texseg: {reason_of(error)}", err=True)
            ctx.exit(1)

"""What reaches the terminal: texts made safe, signals that end a command."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any

import click

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)


class InterruptedBySignalError(KeyboardInterrupt):
    """Ctrl-C, or a signal that ends a command in the same way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the body as Ctrl-C does: reports are written, files are whole.

    After the first of them, only Ctrl-C has an effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # not by nohup

    def end(number: int, frame: FrameType | None) -> None:
        for other in heard:
            signal.signal(other, signal.default_int_handler if other == signal.SIGINT else signal.SIG_IGN)
        raise InterruptedBySignalError(number)

    before = [signal.signal(number, end) for number in heard]
    try:
        yield
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)


def shown(name: str | PurePath) -> str:
    r"""Name of a file as text, whatever bytes it consists of.

    Examples
    --------
    >>> import os
    >>> shown(os.fsdecode(b"caf\xe9.png"))
    'caf\\xe9.png'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    r"""Text of one line without anything that a terminal would interpret.

    Examples
    --------
    >>> printable("a\x1b[2Jb\nc \N{RIGHT-TO-LEFT OVERRIDE} \N{LATIN SMALL LETTER E WITH ACUTE}")
    'a\\x1b[2Jb\\nc \\u202e é'
    """
    if text.isprintable():
        return text
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line safely, whatever names it contains."""
    click.echo(printable(text), err=err)


class Verbs(click.Group):
    """Keeps the words it was called with, for reports to repeat, and ends as a user expects."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        """Parse the words, which empties their list."""
        words = ("texseg", *args)
        context = super().make_context(info_name, args, *rest, **extra)
        context.obj = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; signals end it in order, and messages are safe to print."""
        try:
            with ended_by_signals():
                return super().invoke(ctx)
        except InterruptedBySignalError as interruption:
            with contextlib.suppress(OSError):  # the terminal may be gone
                notes = getattr(interruption, "__notes__", [])
                click.echo("; ".join(["texseg: interrupted", *notes]), err=True)
            ctx.exit(128 + interruption.number)
        except click.ClickException as error:
            error.__dict__["message"] = printable(error.message)
            raise

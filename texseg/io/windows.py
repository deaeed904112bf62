"""Synonyms of :mod:`texseg.io.source`, for callers that have not moved yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from texseg.io.errors import UnsuitableImageError
from texseg.io.source import Source, open_source

__all__ = ["FileWindows", "open_windows"]

FileWindows = Source


def open_windows(path: Path, **options: Any) -> Source:
    """Open an image file to be read window by window; one that can only be read whole is refused."""
    source = open_source(path, **options)
    if source.only_whole:
        source._close()
        raise UnsuitableImageError(f"{path.name}: {source.only_whole}")
    return source

"""Pages from their templates."""

from __future__ import annotations

import re
from importlib.resources import files

__all__ = ["filled", "part"]


def filled(template: str, **values: str) -> str:
    """Template of this folder with its ``{{NAME}}`` marks replaced."""
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda mark: values[mark[1]], part(template))


def part(name: str) -> str:
    """Text of a file of this folder, for a mark of a template."""
    return files("texseg.report").joinpath(name).read_text("utf-8")

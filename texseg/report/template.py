"""Pages from their templates."""

from __future__ import annotations

import re
from importlib.resources import files

__all__ = ["filled"]


def filled(template: str, **values: str) -> str:
    """Template of this folder with its ``{{NAME}}`` marks replaced."""
    page = files("texseg.report").joinpath(template).read_text("utf-8")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda mark: values[mark[1]], page)

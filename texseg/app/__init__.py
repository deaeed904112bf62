"""Painting in the browser: a page, served to this computer alone, on which strokes correct the segments.

`texseg.app.session` holds what is painted and keeps a model up to date with it; `texseg.app.server` lets the
page of a report, with a brush, talk to it.
"""

from texseg.app.server import Server
from texseg.app.session import FITTED, Canvas, Painted, Session

__all__ = ["FITTED", "Canvas", "Server", "Session", "Painted"]

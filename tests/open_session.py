"""A session of `texseg open` on small images, with its server, for tests."""

import contextlib
import threading
import time

import io_scenes
import numpy as np

from texseg.cli import session as module
from texseg.cli.server import Server
from texseg.cli.session import Canvas, Session

SHAPE = (96, 128)


def stripes(shape=SHAPE):
    """Stripes across on the left, along on the right, flat-ish noise below."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    image = np.where(columns < shape[1] // 2, np.sin(rows), np.sin(columns / 2))
    noise = np.random.default_rng(0).normal(0, 0.3, shape)
    return np.where(rows < 2 * shape[0] // 3, image + noise / 5, noise)


class ArrayPage:
    """What a session reads: an array as an open file."""

    channel_axis = pixel_size = None

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def read(self, window=None):
        return io_scenes.image_of(self.array if window is None else self.array[window])


@contextlib.contextmanager
def served(folder, images=None, *, large=False, save=None, **parameters):
    """Serve a session; yields the server."""
    images = [stripes()] if images is None else images
    pages = [ArrayPage(image) if isinstance(image, np.ndarray) else image for image in images]
    canvases = [Canvas(f"image {n}", page, large) for n, page in enumerate(pages)]
    given = {"flat_ground": False, "cue": "texture", "learned_borders": False, **parameters}
    module._REST = 0  # strokes do not come in a row
    session = Session(canvases, given, save or (lambda *_: {}), folder / "strokes" / "image.json")
    with Server(session, [("labels", True), ("confidence", False)]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            session.close()


def settle(session, seconds=20):
    """Wait until the model follows all operations and everything is told about it."""
    end = time.monotonic() + seconds
    with session.changed:
        while session.is_behind or any(session.content.get(n, {"rest": True})["rest"] for n in session._seen):
            assert time.monotonic() < end, session.said
            session.changed.wait(0.1)


def stroke(cls, *points, image=0, width=3):
    """Make an operation that paints a stroke."""
    return {"kind": "stroke", "image": image, "cls": cls, "points": [[x, y, width] for x, y in points]}

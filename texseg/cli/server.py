"""The server of the page: HTTP for this computer alone, by the standard library, which is as short as any.

Nothing is served unless the connection comes over the loopback; ``Host`` names this server (against DNS
rebinding); ``Origin`` and the site of the request are those of this page; and the token is right, in the
address of the page and in a header of everything else. No path of a file is ever made from a request.
"""

import hmac
import json
import os
import re
import secrets
from collections.abc import Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import texseg
from texseg.cli.session import FITTED, Session, Window, numbered
from texseg.io.regions import palette
from texseg.parameters import MOST_SEGMENTS, PARAMETERS, Parameter
from texseg.report.pages import filled, part_of, script_json, terms
from texseg.report.pictures import encoded, reduced_labels

_TILE = 512  # pixels of a picture of a part of an image
_MOST_STEP, _WANTED_STEP = 2**8, 2**3  # pixels for one of it; up to so many, its labels are made next
_LARGEST_BODY = 2**20  # bytes
_PATIENCE = 20.0  # seconds until an unchanged state is sent all the same
_SILENCE = 60.0  # seconds until a connection that says nothing is closed
_OF_THE_SESSION = ("version", "painted", "contents", "progress", "said", "saved")  # told to the page
_ONCE = ("Host", "Origin", "X-Token", "Content-Length", "Transfer-Encoding")
_POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SENT = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request that is not served: a status and a reason."""


class Server(ThreadingHTTPServer):
    """Serves the page of a session; ``kinds`` of results can be saved, and are ticked or not."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # of a server that has ended; elsewhere, of one that runs, too

    def __init__(self, session: Session, kinds: Sequence[tuple[str, bool]], port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OSError(f"port {port}: {reason}; choose another with --port, or omit it") from None
        self.session, self.kinds, self.token = session, kinds, secrets.token_urlsafe(32)
        self.hosts = f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"
        self.address = f"http://{self.hosts[0]}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version, timeout = "texseg", "", _SILENCE
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: Any) -> None: ...

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection = True  # what is not HTTP, or another method
        self._send(code, b"refused\n", "text/plain")

    def _answer(self) -> None:
        try:
            path, query = self._checked()
            content, kind = (self._get if self.command == "GET" else self._post)(path, query)
            return self._send(200, content, kind)
        except Refused as refusal:
            status, reason = refusal.args
        except ValueError as error:
            status, reason = 400, " ".join(str(error).split())
        except Exception as error:  # whatever it is, others are served on
            status, reason = 500, type(error).__name__
        self.close_connection = True
        return self._send(status, f"{reason}\n".encode("utf-8", "backslashreplace"), "text/plain")

    do_GET = do_POST = _answer

    def _checked(self) -> tuple[str, dict[str, str]]:
        """Refuse what does not come from the page; return path and query."""
        heads = self.headers
        if any(len(heads.get_all(name, [])) > 1 for name in _ONCE):
            raise Refused(400, "a header is given twice")
        host = heads.get("Host")
        if host not in self.server.hosts:
            raise Refused(403, "another host")
        if heads.get("Origin") not in (None, f"http://{host}"):
            raise Refused(403, "another origin")
        if heads.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "another site")
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query, max_num_fields=10))
        is_page = self.command == "GET" and self.path.startswith("/?")
        given = query.get("token", "") if is_page else heads.get("X-Token", "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.server.token.encode()):
            raise Refused(403, "the token is missing or wrong: open the address that the command printed")
        return address.path, query

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        policy = _POLICY.format(self._nonce) if "html" in kind else "default-src 'none'; sandbox"
        named = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": policy}
        for name, value in {**named, **_SENT}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _get(self, path: str, query: dict[str, str]) -> tuple[bytes, str]:
        if path == "/":
            return self._page(), "text/html; charset=utf-8"
        if path == "/state":
            return json.dumps(self._state(query)).encode(), "application/json"
        found = re.fullmatch(r"/(picture|labels)/(\d{1,6})(?:/(\d)/(\d{1,6})/(\d{1,6}))?", path, re.ASCII)
        session = self.server.session
        if found is None or not self.path.startswith("/") or int(found[2]) >= len(session.pictures):
            raise Refused(404, "no such page")
        image, is_part = int(found[2]), found[3] is not None
        picture, labels = session.pictures[image], session.labels.get(image)
        window, shape, step = None, picture.shown, 1
        if is_part:
            step = 2 ** int(found[3])
            window, shape = _part_of(picture.shape, step, int(found[4]), int(found[5]))
        if found[1] == "picture":
            return encoded(picture.picture(window, shape), "jpeg", quality=90), "image/jpeg"
        if labels is None:
            raise Refused(404, "not known yet")
        if picture.is_large and window and step <= _WANTED_STEP:
            session.want(image, window)
        small = labels[window][::step, ::step] if window else reduced_labels(labels, shape)
        return encoded(small, "png", optimize=False, compress_level=1), "image/png"

    def _post(self, path: str, query: dict[str, str]) -> tuple[bytes, str]:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not re.fullmatch(r"\d{1,9}", length, re.ASCII):
            raise Refused(411, "the length is missing")
        if int(length) > _LARGEST_BODY:
            raise Refused(413, f"more than {_LARGEST_BODY} bytes")
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "not JSON")
        try:
            given = json.loads(self.rfile.read(int(length)))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        session, by = self.server.session, self.headers.get("X-Window", "")[:40]
        if path == "/do":
            session.do(given, by)
        elif path in ("/undo", "/redo"):
            session.undo(by, again=path == "/redo")
        elif path == "/cancel":
            session.cancel()
        elif path == "/save" and isinstance(given, dict):
            kinds, known = given.get("kinds"), [kind for kind, _ in self.server.kinds]
            if not isinstance(kinds, list) or not all(kind in known for kind in kinds):
                raise ValueError(f"kinds must be a list of {', '.join(known)}")
            session.save(session.image(given.get("image")), kinds)
        else:
            raise Refused(404, "no such page")
        return json.dumps({"painted": session.painted}).encode(), "application/json"

    def _page(self) -> bytes:
        self._nonce, mine, session = secrets.token_urlsafe(16), files("texseg.cli"), self.server.session
        texts = (mine.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
        html, style, script = texts
        tools, panel = html.split("<!-- panel -->\n")
        about = {
            "images": [picture.name for picture in session.pictures],
            "tile": _TILE,
            "kinds": self.server.kinds,
            "palette": palette(MOST_SEGMENTS).tolist(),
            "parameters": {name: _told(PARAMETERS[name]) for name in FITTED[1:]},
        }
        page = filled(
            "report.html",
            NONCE=f' nonce="{self._nonce}"',
            TITLE=escape(session.pictures[0].name),
            FACTS=terms({"texseg": texseg.__version__}),
            IMAGE="data:,",
            TOOLS=tools,
            PANEL=panel,
            STYLE=part_of("report.css") + style,
            SCRIPT=part_of("report.js") + script,
            CONTENT=script_json(about),
        )
        return page.encode()

    def _state(self, query: dict[str, str]) -> dict[str, Any]:
        session, names = self.server.session, ("image", "since", "painted", "contents")
        if any(not re.fullmatch(r"-?\d{1,15}", query.get(name, ""), re.ASCII) for name in names):
            raise ValueError(f"numbers of {', '.join(names)} are needed")
        number, since, painted, contents = (int(query[name]) for name in names)
        image = session.image(number)
        own, picture = {self.headers.get("X-Window", "")[:40], "earlier"}, session.pictures[image]
        session.look(image)
        with session.changed:
            session.changed.wait_for(lambda: session.version != since, _PATIENCE)
            live = session.live
            told: dict[str, Any] = {
                **{name: getattr(session, name) for name in _OF_THE_SESSION},
                "number": session.number if image in session.labels else 0,
                "classes": session.classes(),
                "merged": {} if session.state is None else numbered(session.state.classes),
                "busy": session.is_behind,
                "stuck": session.is_stuck,
                "settling": session.will_settle,
                "shape": picture.shape,
                "shown": picture.shown,
                "large": picture.is_large,
                "undo": any(each["by"] in own for each in session.operations),
                "redo": any(each["by"] in own for each in session.undone),
                "earlier": sum(each["by"] == "earlier" for each in live),
            }
            if session.painted != painted:
                strokes = (each for each in live if each["kind"] == "stroke")
                told["strokes"] = [each for each in strokes if each["image"] == image]
            if session.contents != contents and image in session.content:
                told["content"] = session.content[image]
        return told


def _part_of(shape: tuple[int, int], step: int, *place: int) -> tuple[Window, tuple[int, int]]:
    """Window of a part of an image, in tiles of that many pixels each way, and its size when reduced."""
    rows, columns = (
        slice(at * _TILE * step, min((at + 1) * _TILE * step, n)) for at, n in zip(place, shape, strict=True)
    )
    height, width = (-(-(part.stop - part.start) // step) for part in (rows, columns))
    if step > _MOST_STEP or min(height, width) < 1:
        raise Refused(404, "no such part")
    return (rows, columns), (height, width)


def _told(row: Parameter) -> dict[str, Any]:
    told = {"title": row.name.replace("_", " "), "help": row.option.partition("  [")[0]}
    flags = [("auto", None), ("yes", True), ("no", False)]
    if choices := flags if row.base is bool else [(choice, choice) for choice in row.choices]:
        return {**told, "choices": choices}
    usual = row.default if row.presets is None else row.presets[0]
    return {**told, "min": row.limits[0], "usual": str(usual), "none": row.default}

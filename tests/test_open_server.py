"""What the server of `texseg open` refuses, and what a session makes of operations, without a browser."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from click.testing import CliRunner
from open_session import SHAPE, served, settle, stripes, stroke
from PIL import Image

from texseg import read_labels
from texseg.cli import main
from texseg.cli import session as module
from texseg.cli.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("open"), k_max=4) as server:
        settle(server.session)
        yield server


def ask(server, path, method="GET", body=None, **headers):
    """Status and content of a request; a header that is None is not sent."""
    usual = {"Host": server.hosts[0], "X-Token": server.token, "X-Window": "test"}
    if body is not None:
        usual |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {**usual, **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def state_of(server):
    status, content, _ = ask(server, "/state?image=0&since=-1&painted=-1&contents=-1")
    assert status == 200
    return json.loads(content)


class TestRefusals:
    def test_the_page_is_served_with_a_strict_policy(self, server):
        status, content, headers = ask(server, f"/?token={server.token}", X_Token=None)
        policy = headers["Content-Security-Policy"]
        assert status == 200 and b"<canvas" in content
        assert (
            "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        )
        nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)[1].encode()
        assert content.count(b"<script") == 2 and content.count(b'<script nonce="' + nonce) == 1
        assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
        assert nonce not in ask(server, f"/?token={server.token}")[1]  # a new one each time

    @pytest.mark.parametrize(
        "path", ["/", "/?token=", "/?token=wrong", "/state?image=0", "/picture/0", "/labels/0"]
    )
    def test_nothing_is_served_without_the_token(self, server, path):
        assert ask(server, path, X_Token=None)[0] == 403
        assert ask(server, path, X_Token="wrong")[0] == 403
        assert ask(server, path, X_Token="\xe9" + server.token)[0] == 403

    def test_the_token_in_an_address_opens_the_page_alone(self, server):
        for path in (
            f"/state?image=0&since=-1&painted=-1&contents=-1&token={server.token}",
            f"/labels/0?token={server.token}",
        ):
            assert ask(server, path, X_Token=None)[0] == 403

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example"},
            {"Host": None},
            {"Host": "127.0.0.1"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Sec_Fetch_Site": "same-site"},
        ],
    )
    def test_pages_elsewhere_are_refused(self, server, headers):
        before = len(server.session.operations)
        body = json.dumps(stroke(1, (5, 5))).encode()
        assert ask(server, "/do", "POST", body, **headers)[0] in (400, 403)
        assert ask(server, f"/?token={server.token}", **headers)[0] in (400, 403)
        assert len(server.session.operations) == before

    def test_the_own_origin_is_served(self, server):
        own = {"Origin": f"http://{server.hosts[0]}", "Sec_Fetch_Site": "same-origin"}
        assert ask(server, "/labels/0", **own)[0] == 200
        assert ask(server, "/labels/0", Host=server.hosts[1])[0] == 200

    @pytest.mark.parametrize(
        "path",
        [
            "/../etc/passwd",
            "/picture/../../etc/passwd",
            "/picture/..%2f..%2fetc%2fpasswd",
            "/picture/%00",
            "//etc/passwd",
            "/etc/passwd",
            "/picture/1",
            "/picture/-1",
            "/picture/0/0/9/9",
            "/picture/0/9/0/0",
            "/picture/%d9%a0",
            "/picture/0/",
            "/labels/0/0/0",
            "/report.js",
            "http://evil.example/picture/0",
        ],
    )
    def test_paths_lead_nowhere_else(self, server, path):
        status, content, _ = ask(server, path)
        assert status == 404 and b"root" not in content

    @pytest.mark.parametrize(
        "method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PATCH", "X" * 100]
    )
    def test_other_methods_are_refused(self, server, method):
        assert ask(server, "/labels/0", method)[0] in (400, 501)

    def test_it_listens_to_the_loopback_alone(self, server):
        assert server.socket.getsockname()[0] == "127.0.0.1"

    @pytest.mark.parametrize(
        "given, said",
        [
            ("[]", "not an operation"),
            ("{}", "not an operation"),
            ('{"kind": "eval"}', "not an operation"),
            ("[" * 100_000, "nested too deeply"),
            ("{", "Expecting"),
            (stroke(1), "points must be a list of 1 to 5000"),
            (stroke(1, *[(1, 1)] * 5001), "points must be a list of 1 to 5000"),
            (stroke(-1, (1, 1)), "a whole number from 0 to"),
            (stroke(1, (1, 1), image=1), "a whole number from 0 to 0 is needed, got 1"),
            (stroke(1, (1, 1), width=0), "points must be finite"),
            (stroke(1, (float("nan"), 1)), "points must be finite"),
            (stroke(1, (1, float("inf"))), "points must be finite"),
            (stroke(1, ("one", 1)), "could not convert"),
            ({"kind": "merge", "classes": [1]}, "not an operation"),
            ({"kind": "merge", "classes": [1, "2"]}, "a whole number from 1 to"),
            ({"kind": "split", "cls": True}, "a whole number from 1 to"),
            ({"kind": "name", "cls": 1, "name": "\x1b[2J"}, "names must be without control characters"),
            ({"kind": "name", "cls": 1, "name": 5}, "names must be of the form"),
            ({"kind": "fit", "values": {"callback": 1}}, "not an operation"),
            ({"kind": "fit", "values": {"smoothness": -1}}, "smoothness must be"),
            ({"kind": "mask", "image": 0, "keep": True, "points": [[1, 1, 1]]}, "not an operation"),
        ],
    )
    def test_operations_are_checked(self, server, given, said):
        before = len(server.session.operations)
        body = given if isinstance(given, str) else json.dumps(given)
        status, content, _ = ask(server, "/do", "POST", body.encode())
        assert status == 400 and said in content.decode()
        assert len(server.session.operations) == before

    def test_bodies_have_a_limit_a_length_and_a_type(self, server):
        assert ask(server, "/do", "POST", b"{}", Content_Length="1048577")[0] == 413
        assert ask(server, "/do", "POST", b"{}", Content_Length=None)[0] == 411
        assert ask(server, "/do", "POST", b"{}", Content_Length="-1")[0] == 411
        assert ask(server, "/do", "POST", b"{}", Transfer_Encoding="chunked")[0] == 411
        assert (
            ask(server, "/do", "POST", b"{}", Content_Type="text/plain")[0] == 415
        )  # what forms elsewhere can send
        assert ask(server, "/save", "POST", b"[]")[0] == 404
        assert ask(server, "/save", "POST", b'{"image": "../0", "kinds": []}')[0] == 400
        for kinds in ('"labels"', '["../run"]', "[5]", "[[]]", "null"):
            body = f'{{"image": 0, "kinds": {kinds}}}'.encode()
            status, content, _ = ask(server, "/save", "POST", body)
            assert status == 400 and b"kinds must be a list of labels, confidence" in content

    @pytest.mark.parametrize("query", ["", "?image=0", "?image=0&since=x&painted=-1&contents=-1", "?image="])
    def test_a_state_needs_its_numbers(self, server, query):
        status, content, _ = ask(server, f"/state{query}")
        assert status == 400 and b"numbers of image, since, painted, contents are needed" in content

    def test_odd_requests_neither_crash_nor_are_served(self, server):
        rng = random.Random(0)
        pieces = [
            b"GET",
            b"POST",
            b" ",
            b"/",
            b"/state",
            b"?image=0",
            b" HTTP/1.1",
            b" HTTP/9.9",
            b"\r\n",
            b"\n",
            b"\0",
            b":",
        ]
        pieces += [
            b"Host: ",
            server.hosts[0].encode(),
            b"X-Token: ",
            b"Content-Length: 9" * 3,
            b"\xff\xfe",
            b"%2e%2e/",
            b"A" * 999,
        ]
        for _ in range(400):
            with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as line:
                line.sendall(b"".join(rng.choice(pieces) for _ in range(rng.randint(1, 25))) + b"\r\n\r\n")
                line.shutdown(socket.SHUT_WR)
                answer = line.recv(4096)
            assert not re.match(rb"HTTP/\S+ 200", answer)
        assert ask(server, "/labels/0")[0] == 200


class TestOperations:
    """Each begins anew, so that they share one session."""

    @pytest.fixture
    def session(self, server):
        session = server.session
        session.do({"kind": "anew"}, "a")
        settle(session)
        return session

    def do(self, session, *operations, by="a"):
        for operation in operations:
            session.do(operation, by)
        settle(session)

    def test_a_stroke_wins_where_it_is_painted_and_undo_takes_it_back(self, session):
        before = session.labels[0].copy()
        cls = session.classes()[0]["cls"]
        place = np.argwhere(before == 2)[0].tolist()
        self.do(session, stroke(cls, place[::-1]))
        assert session.labels[0][tuple(place)] == 1
        session.undo("a")
        settle(session)
        assert np.array_equal(session.labels[0], before)
        session.undo("a", again=True)
        settle(session)
        assert session.labels[0][tuple(place)] == 1

    def test_an_eraser_takes_strokes_away(self, session):
        before = session.labels[0].copy()
        self.do(session, stroke(1, (20, 20), (40, 20)), stroke(0, (10, 20), (60, 20), width=9))
        assert np.array_equal(session.labels[0], before)

    def test_a_new_class_gets_the_next_label(self, session):
        n = len(session.classes())
        self.do(session, {"kind": "class"})
        cls = session.classes()[-1]["cls"]
        self.do(session, stroke(cls, (20, 85), (100, 85), width=8))
        assert session.state.classes[-1] == (cls,) and (session.labels[0] == n + 1).sum() > 500

    def test_windows_do_not_lose_each_others_strokes(self, session):
        self.do(session, stroke(1, (10, 10)), by="b")
        self.do(session, stroke(2, (100, 20)), by="c")
        session.undo("b")
        settle(session)
        assert [each["cls"] for each in session.live] == [2]
        session.undo("b")  # nothing of its own is left
        assert [each["cls"] for each in session.live] == [2]

    def test_merges_are_split_again_and_names_follow(self, session):
        before = session.labels[0].copy()
        first, second = (each["cls"] for each in session.classes()[:2])
        self.do(
            session,
            {"kind": "name", "cls": second, "name": "grain"},
            {"kind": "merge", "classes": [first, second]},
        )
        assert session.classes()[0]["name"] == "grain"
        assert np.array_equal(session.labels[0] == 1, (before == 1) | (before == 2))
        self.do(session, {"kind": "split", "cls": first})
        assert len(np.unique(session.labels[0])) == len(np.unique(before))

    def test_what_cannot_be_done_is_said_and_nothing_else_is_lost(self, session):
        classes = [each["cls"] for each in session.classes()]
        self.do(
            session,
            stroke(classes[0], (10, 10)),
            stroke(classes[1], (100, 20)),
            {"kind": "split", "cls": classes[0]},
        )
        assert "is a class of strokes" in session.said[-1][1]
        assert [each["kind"] for each in session.live] == ["stroke", "stroke"]

    def test_a_lasso_leaves_out_what_it_is_drawn_around(self, session):
        square = [[0, 0, 1], [30, 0, 1], [30, 30, 1], [0, 30, 1]]
        self.do(session, {"kind": "mask", "image": 0, "keep": False, "points": square})
        assert not session.labels[0][:30, :30].any() and session.labels[0][40:, 40:].all()

    def test_a_lasso_that_leaves_nothing_changes_nothing(self, session):
        outside = [[-9, -9, 1], [-5, -9, 1], [-5, -5, 1]]
        self.do(session, {"kind": "mask", "image": 0, "keep": True, "points": outside})
        assert "no valid pixels" in session.said[-1][1] and not session.live
        assert session.labels[0].all() and not session.state.left

    def test_merged_segments_stay_merged_with_other_parameters(self, session):
        self.do(session, {"kind": "fit", "values": {"n_segments": 4}})
        classes = [each["cls"] for each in session.classes()]
        self.do(session, stroke(classes[3], (10, 85), (110, 85)), {"kind": "merge", "classes": classes[:2]})
        before = session.labels[0].copy()
        self.do(session, {"kind": "fit", "values": {"smoothness": 1.01}})
        assert session.state.classes == (tuple(classes[:2]), (classes[2],), (classes[3],))
        assert session.state.parameters["smoothness"] == 1.01 and np.mean(session.labels[0] == before) > 0.85

    def test_another_number_keeps_the_painted_classes(self, session):
        self.do(session, {"kind": "fit", "values": {"n_segments": 3}})
        self.do(session, stroke(1, (10, 10), (40, 10)), stroke(2, (90, 10), (110, 10)))
        self.do(session, {"kind": "fit", "values": {"n_segments": 2}})
        labels = session.labels[0]
        assert len(session.classes()) == 2 and labels[10, 20] == 1 and labels[10, 100] == 2

    def test_erased_strokes_leave_no_class_when_the_number_changes(self, session):
        self.do(session, stroke(3, (10, 85), (100, 85)), stroke(0, (0, 85), (127, 85), width=20))
        self.do(session, {"kind": "fit", "values": {"n_segments": 2}})
        assert session.state.classes == ((1,), (2,))


def test_a_single_segment_can_be_painted_and_gets_a_second(tmp_path):
    with served(tmp_path, [np.zeros((96, 128), np.uint8)], k_min=1) as server:
        session = server.session
        settle(session)
        session.do(stroke(1, (10, 10), (20, 12)), "a")
        settle(session)
        assert session.state.classes == ((1,),) and not session.said
        session.do({"kind": "class"}, "a")
        session.do(stroke(session.classes()[-1]["cls"], (100, 10), (120, 12)), "a")
        settle(session)
        assert session.labels[0][11, 110] == 2 and session.labels[0][11, 15] == 1


def test_an_image_without_data_is_said_as_long_as_it_is_shown(tmp_path):
    with served(tmp_path, [np.full((64, 64), np.nan)]) as server:
        with server.session.changed:
            assert server.session.changed.wait_for(lambda: server.session.is_stuck, 20)
        told = state_of(server)
        assert told["stuck"] and "no valid pixels" in told["said"][-1][1] and not told["number"]


def test_strokes_are_kept_as_they_are_made_and_offered_again(tmp_path):
    with served(tmp_path, k_max=3) as server:
        settle(server.session)
        ask(server, "/do", "POST", json.dumps(stroke(1, (5, 5), (30, 8))).encode())
        ask(server, "/do", "POST", b'{"kind": "class"}')
        cls = server.session.classes()[-1]["cls"]
    with served(tmp_path, k_max=3) as server:
        settle(server.session)
        told = state_of(server)
        assert told["earlier"] == 2 and told["strokes"][0]["points"][1][:2] == [30, 8]
        assert server.session.classes()[-1]["cls"] == cls
    with served(tmp_path, [stripes((80, 80))], k_max=3) as server:  # another image of that name
        settle(server.session)
        assert (
            state_of(server)["earlier"] == 0
            and "does not belong to these images" in server.session.said[0][1]
        )
        ask(server, "/do", "POST", json.dumps(stroke(1, (5, 5))).encode())
    kept = json.loads((tmp_path / "strokes" / "image.json").read_text())
    assert len(kept["operations"]) == 2


def test_a_lasso_of_an_earlier_session_can_be_undone(tmp_path):
    square = [[0, 0, 1], [30, 0, 1], [30, 30, 1], [0, 30, 1]]
    mask = {"kind": "mask", "image": 0, "keep": False, "points": square, "id": 1}
    (tmp_path / "strokes").mkdir()
    about = {"images": [["image 0", *SHAPE]], "operations": [mask]}
    (tmp_path / "strokes" / "image.json").write_text(json.dumps(about))
    with served(tmp_path, n_segments=2) as server:
        session = server.session
        settle(session)
        assert session.operations and not session.labels[0][:30, :30].any()
        session.undo("a")
        settle(session)
        assert session.labels[0].all() and not session.state.left


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_in_place_of_the_strokes_does_not_hang(tmp_path):
    (tmp_path / "strokes").mkdir()
    os.mkfifo(tmp_path / "strokes" / "image.json")
    with served(tmp_path, n_segments=2) as server:
        assert server.session.path.name == "image_2.json"


def test_two_pages_on_one_folder_lose_no_strokes(tmp_path):
    with served(tmp_path) as one, served(tmp_path) as other:
        for server, place in ((one, 10), (other, 30), (one, 50), (other, 70)):
            server.session.do(stroke(1, (place, 10), (place + 5, 20)), "a")
        files = [json.loads(path.read_text()) for path in sorted((tmp_path / "strokes").glob("*.json"))]
        assert sorted(len(each["operations"]) for each in files) == [2, 2]


def test_images_share_one_model_and_strokes_of_all_are_learned(tmp_path):
    images = [stripes(), stripes()[:, ::-1].copy()]
    with served(tmp_path, images, n_segments=2) as server:
        session = server.session
        settle(session)
        session.look(1)
        settle(session)
        assert session.labels[1].shape == SHAPE and len(session.state.members) == 1
        session.do(stroke(1, (100, 10), (120, 10), image=1), "a")
        session.do(stroke(2, (100, 20), (120, 20), image=0), "a")
        settle(session)
        assert [image for image, _ in session.state.members] == [0, 1]
        assert session.labels[1][10, 110] == 1 and session.labels[0][20, 110] == 2


def test_a_large_image_is_learned_from_crops_and_labelled_by_blocks(tmp_path, monkeypatch):
    for name, value in (("_CROP", 96), ("_CROPS", 3), ("SIDE", 128)):
        monkeypatch.setattr(module, name, value)
    with served(tmp_path, [stripes((300, 400))], large=True, n_segments=3) as server:
        session = server.session
        settle(session)
        assert {part.stop - part.start for _, window in session.state.members for part in window} == {96}
        assert ask(server, "/picture/0/0/0/0")[0] == ask(server, "/labels/0/1/0/0")[0] == 200
        told = []
        with session.changed:
            while len(session._blocks[0]) < len(session.plan(0)):
                assert session.changed.wait(20)
                told.append(session.progress)
        assert told.count(None) < 3 and {each[0] for each in told if each} == {"blocks"}
        assert session.labels[0].all() and session.confidence[0].all()  # every block
        settle(session)
        picture = json.loads(ask(server, "/state?image=0&since=-1&painted=-1&contents=-1")[1])["content"]
        sure = np.array(Image.open(BytesIO(b64decode(picture["confidence"].partition(",")[2]))))
        assert sure.shape == (300, 400) and np.abs(sure.astype(int) - session.confidence[0]).max() <= 4
        assert len(picture["doubts"]) > 1
        outside = np.ones((300, 400), bool)
        for _, window in session.state.members:
            outside[window] = False
        y, x = np.argwhere(outside)[0].tolist()
        n = len(session.state.members)
        session.do(stroke(2, (x, y)), "a")
        settle(session)
        assert session.labels[0][y, x] == 2 and len(session.state.members) == n + 1


def test_the_command_saves_what_makes_it_again_and_ends_with_its_terminal(tmp_path, monkeypatch):
    np.save(tmp_path / "rock.npy", (100 + 50 * stripes()).astype(np.uint8))
    command = [sys.executable, "-m", "texseg"]
    words = ["open", "rock.npy", "-k", "3", "-o", "out", "--no-browser"]
    with (
        subprocess.Popen([*command, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as whatever_happens,
    ):
        whatever_happens.callback(process.kill)
        found = re.search(r"http://(127\.0\.0\.1:(\d+))/\?token=(\S+)", process.stdout.readline())

        class Address:
            hosts, server_port, token = (found[1],), int(found[2]), found[3]

        def settled():
            end = time.monotonic() + 60
            while (told := state_of(Address))["busy"] or not told["number"]:
                assert time.monotonic() < end, told["said"]
                time.sleep(0.05)

        settled()
        for operation in (
            stroke(1, (10, 10), (50, 12)),
            stroke(2, (80, 10), (120, 12)),
            {"kind": "merge", "classes": [2, 3]},
            {"kind": "name", "cls": 2, "name": "grain"},
        ):
            assert ask(Address, "/do", "POST", json.dumps(operation).encode())[0] == 200
        settled()
        assert (
            ask(Address, "/save", "POST", b'{"image": 0, "kinds": ["labels", "model", "../run"]}')[0] == 400
        )
        assert ask(Address, "/save", "POST", b'{"image": 0, "kinds": ["labels", "model"]}')[0] == 200
        end = time.monotonic() + 60
        while not (saved := state_of(Address)["saved"]):
            assert time.monotonic() < end, state_of(Address)["said"]
            time.sleep(0.05)
        on_the_page = np.array(Image.open(BytesIO(ask(Address, "/labels/0")[1])))
        process.send_signal(signal.SIGHUP)
        start = time.monotonic()
        assert process.wait(10) == 128 + signal.SIGHUP and time.monotonic() - start < 3
    assert sorted(os.listdir(tmp_path)) == ["out", "rock.npy"]
    assert set(saved["files"]) == {
        "strokes/rock.png",
        "rock_labels.png",
        "rock_labels.tif",
        "rock_run.json",
        "rock.texseg",
    }
    shown = read_labels(tmp_path / "out" / "rock_labels.png")
    assert np.unique(shown).tolist() == [1, 2] and np.array_equal(shown, on_the_page)
    (_, again), (_, apply) = saved["commands"]
    assert "--merge 2+3=grain" in again and "--seeds out/strokes/rock.png" in again
    monkeypatch.chdir(tmp_path)
    for line in (again, apply):
        assert CliRunner().invoke(main, [*line.split()[1:], "-q"]).exit_code == 0
        found = read_labels(tmp_path / "out" / "rock_labels.png")
        assert np.mean(found == shown) > (0.9999 if line == again else 0.97)


@pytest.mark.parametrize("painted", [False, True])
def test_a_user_who_ends_it_is_told_what_was_kept(tmp_path, painted):
    np.save(tmp_path / "rock.npy", (100 + 50 * stripes()).astype(np.uint8))
    if painted:
        about = {"images": [["rock", *SHAPE]], "operations": [stroke(1, (5, 5)) | {"id": 1}]}
        (tmp_path / "out" / "strokes").mkdir(parents=True)
        (tmp_path / "out" / "strokes" / "rock.json").write_text(json.dumps(about))
    words = [sys.executable, "-m", "texseg", "open", "rock.npy", "-o", "out", "--no-browser"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen(words, **piped) as process:
        assert "painting at" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1].splitlines()
    kept = "all that was painted is in out/strokes/rock.json" if painted else "nothing was painted"
    assert process.returncode == 0 and said[-1] == f"texseg: ended; {kept}"


def test_a_port_that_is_in_use_is_named_and_free_again_afterwards(tmp_path):
    np.save(tmp_path / "rock.npy", np.zeros((64, 64), np.uint8))
    with served(tmp_path, n_segments=2) as server:
        port = server.server_port
        words = ["open", str(tmp_path / "rock.npy"), "-o", str(tmp_path), "--port", str(port)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 1 and f"port {port}: address already in use; choose" in result.output
        assert ask(server, "/", X_Token="wrong")[0] == 403  # the server closes this connection
    Server(server.session, [], port).server_close()


def test_all_pages_at_once_are_refused(tmp_path):
    np.save(tmp_path / "rock.npy", np.zeros((64, 64), np.uint8))
    result = CliRunner().invoke(main, ["open", str(tmp_path / "rock.npy"), "--page", "all"])
    assert result.exit_code == 2 and "give its number with --page" in result.output


def test_operations_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_OPERATIONS", 1)
    with served(tmp_path, n_segments=2) as server:
        assert ask(server, "/do", "POST", b'{"kind": "class"}')[0] == 200
        status, content, _ = ask(server, "/do", "POST", b'{"kind": "class"}')
        assert status == 400 and b"at most 1 operations are kept" in content

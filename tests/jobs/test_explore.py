"""`lle explore`: what its server answers, to whom, and how the command ends."""

import csv
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import urlencode, urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from PIL import Image

from lle import embed
from lle.jobs.explore_server import Server, explore
from lle.jobs.served_run import HELD_SELECTIONS, Axes, load_run
from lle.storage.store import Store
from tests.support.commands import lle, refused, write_config

QUERY = {"x": 0, "y": 1, "component": -1, "color": 2, "dark": 0, "selection": 0}
NAMES = np.array(["left", 'right, "far"'])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on two planes far apart with ids and labels, the middle of each and the rest; row 7 has no numbers."""
    folder, rng = tmp_path_factory.mktemp("explore"), np.random.default_rng(19)
    places = rng.uniform(-1, 1, (300, 2))
    places[[7, 42, 43]] = [0, 0], [1, 1], [0, 0]
    x = np.vstack([places[:200] @ rng.random((2, 4)), places[200:] @ rng.random((2, 4)) + 50.0])
    x[7] = np.nan
    labels = NAMES[(np.hypot(*places.T) > 0.8).astype(int)]
    table = pa.table({**{f"f{j}": x[:, j] for j in range(4)}, "kind": labels, "name": [f"n{i}" for i in range(300)]})
    pq.write_table(table, folder / "x.parquet")
    config = write_config(
        folder,
        input={"kind": "parquet", "path": str(folder / "x.parquet"), "label": "kind", "id": "name"},
        preprocess={"invalid": "drop"},
        neighbors={"n_neighbors": 6},
        quality={"sample": 60},
    )
    lle("run", config)
    return Store(str(folder / "run.zarr")), labels


@pytest.fixture(scope="module")
def server(run):
    with Server(load_run(run[0]), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("label", [1_700_000_000, 2.0**31 + 0.25, 2.0**24], ids=["seconds", "small range", "integers"])
def test_labels_keep_their_digits(tmp_path, label):
    labels = label + np.arange(90.0)
    rows = np.random.default_rng(20).random((90, 3))
    embed(rows, labels=labels, store=tmp_path / "run.zarr", method="pca", quality={"sample": 60})
    run = load_run(Store(str(tmp_path / "run.zarr")))
    table = pd.read_csv(io.BytesIO(b"".join(run.csv(np.arange(90)))))
    np.testing.assert_array_equal(table["label"], labels)
    assert dict(run.row(Axes(0, 1, -1), 5)["values"])["label"] == f"{labels[5]:.12g}"


@pytest.mark.parametrize("name", ["row", "y1"])
def test_csv_has_the_ids_beside_a_result_of_their_name(tmp_path, name):
    rows, ids = np.random.default_rng(20).random((90, 3)), [f"n{i}" for i in range(90)]
    pq.write_table(pa.table({**{f"f{j}": rows[:, j] for j in range(3)}, name: ids}), tmp_path / "x.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "x.parquet"), "id": name}
    table = csv_of_run(write_config(tmp_path, input=source))
    assert table[f"input_{name}"].tolist() == ids
    assert table["row"].tolist() == list(range(90))


def test_csv_has_the_second_label_beside_a_result_of_its_name(tmp_path):
    rows, labels = np.random.default_rng(20).random((90, 3)), np.random.default_rng(21).random((90, 2))
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group["X"], group["y"] = rows, labels
    source = {"kind": "zarr", "url": str(tmp_path / "x.zarr"), "array": "X", "labels": "y"}
    table = csv_of_run(write_config(tmp_path, input=source))
    np.testing.assert_allclose(table[["y", "input_y2"]], labels, rtol=1e-6)


def csv_of_run(config) -> pd.DataFrame:
    run = load_run(Store(lle("run", config, "--set", "method=pca")["store"]))
    return pd.read_csv(io.BytesIO(b"".join(run.csv(np.arange(90)))))


def get(server, name="", host=None, path=None, **query):
    """Status, headers and content of an answer; the server's own address if nothing else is given."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Host": host.format(port=port)} if host is not None else {}
    own = f"{urlsplit(server.url).path}{name}?{urlencode({**QUERY, **query})}"
    connection.request("GET", own if path is None else path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def ask(server, name, **query):
    status, _, content = get(server, name, **query)
    assert status == 200, content
    return json.loads(content)


def select(server, change="replace", selection=0, **what):
    return ask(server, "select.json", change=change, selection=selection, **what)


def view(server, **query):
    left, right, bottom, top = ask(server, "fit.json", **query)["view"]
    return f"{left},{bottom},{right},{bottom},{right},{top},{left},{top}"


class TestAnswers:
    def test_the_row_under_the_pointer(self, server, run):
        store, labels = run
        embedding = store.read_all("embedding")
        rows = np.flatnonzero(store.read_all("component") == 1)
        x, y = embedding[rows[5], :2]
        record = ask(server, "near.json", component=1, at=f"{x},{y}", reach="0.01,0.01")
        assert record["row"] == rows[5]
        values = dict(record["values"])
        assert values["name"] == f"n{rows[5]}"
        assert values["kind"] == labels[rows[5]]
        assert float(values["coordinate 2"]) == pytest.approx(y, rel=1e-5)
        assert record["tip"] == [f"n{rows[5]}", labels[rows[5]]]
        assert ask(server, "near.json", component=1, at="1e6,1e6", reach="1,1") is None

    def test_all_rows_with_coordinates_are_in_the_first_view(self, server, run):
        embedded = np.flatnonzero(np.isfinite(run[0].read_all("embedding")).all(axis=1))
        number = select(server, polygon=view(server))["selection"]
        _, headers, content = get(server, "selection.csv", selection=number)
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        assert headers["Content-Type"].startswith("text/csv")
        assert [int(row["row"]) for row in rows] == embedded.tolist()
        assert 7 not in embedded
        assert [row["kind"] for row in rows] == run[1][embedded].tolist()
        assert rows[0]["name"] == "n0"
        np.testing.assert_allclose(
            [float(row["y1"]) for row in rows], run[0].read_all("embedding")[embedded, 0], rtol=1e-6
        )

    def test_components_are_side_by_side_or_alone(self, server, run):
        alone = select(server, component=1, polygon=view(server, component=1))
        assert alone["count"] == (run[0].read_all("component") == 1).sum() == 100
        assert len(alone["rows"]) == 100
        assert ask(server, "fit.json")["moved"]
        assert not ask(server, "fit.json", component=0)["moved"]

    def test_chosen_classes_limit_tile_selection_and_hover(self, server, run):
        store, labels = run
        far = select(server, chosen="1", polygon=view(server))
        assert far["count"] == (labels == NAMES[1]).sum()
        row = next(row for row in np.flatnonzero(labels == NAMES[0]) if row > 210)
        x, y = store.read_all("embedding")[row, :2]
        at = {"component": 1, "at": f"{x},{y}", "reach": "1e-6,1e-6"}
        assert ask(server, "near.json", **at)["row"] == row
        assert ask(server, "near.json", chosen="1", **at) is None

    def test_search_by_row_id_and_class(self, server, run):
        for column, text, row in (("row", "42", 42), ("id", "n43", 43)):
            answer = ask(server, "search.json", **{"in": column, "text": text})
            assert (answer["count"], answer["record"]["row"]) == (1, row)
            (x, y), (left, right, bottom, top) = answer["record"]["at"], answer["view"]
            assert left < x < right
            assert bottom < y < top
        for column, texts in (("row", ("7", "300", "-1", "²")), ("id", ("n7", "")), (2, ("righ", ""))):
            for text in texts:
                answer = ask(server, "search.json", **{"in": column, "text": text})
                assert (answer["count"], answer["hidden"], answer["record"]) == (0, 0, None)
        embedded = np.isfinite(run[0].read_all("embedding")).all(axis=1)
        answer = ask(server, "search.json", **{"in": 2, "text": "LEFT", "component": 1})
        shown = (run[1] == "left") & (run[0].read_all("component") == 1)
        assert answer["count"] == shown.sum()
        assert answer["hidden"] == ((run[1] == "left") & embedded).sum() - shown.sum()

    def test_selection_is_changed_by_rows_polygons_and_classes(self, server):
        one = select(server, row=42)
        assert (one["count"], one["rows"][0][0]) == (1, "42")
        two = select(server, "add", one["selection"], row=43)
        assert [row[0] for row in two["rows"]] == ["42", "43"]
        assert [row[0] for row in select(server, "toggle", two["selection"], row=42)["rows"]] == ["43"]
        assert [row[0] for row in select(server, "remove", two["selection"], row=43)["rows"]] == ["42"]
        assert select(server, "remove", two["selection"], polygon=view(server))["count"] == 0
        assert [row[0] for row in select(server, "limit", two["selection"], chosen="1")["rows"]] == ["42"]
        assert select(server, "limit", two["selection"], component=1)["count"] == 0
        assert select(server, "replace", two["selection"], **{"in": "id", "text": "n9"})["rows"][0][0] == "9"
        assert select(server, "clear", two["selection"])["count"] == 0

    def test_only_the_last_selections_are_held(self, server):
        old = select(server, row=42)["selection"]
        assert get(server, "selection.csv", selection=old)[0] == 200
        for row in range(HELD_SELECTIONS):
            select(server, row=row)
        assert get(server, "selection.csv", selection=old)[0] == 400
        assert ask(server, "select.json", change="replace", row=1, selection=0)["count"] == 1

    def test_arrows_find_the_nearest_shown_point_in_their_direction(self, server, run):
        store, labels = run
        y, rows = store.read_all("embedding")[:, :2], np.flatnonzero(store.read_all("component") == 1)
        left, right, bottom, top = ask(server, "fit.json", component=1)["view"]
        start = rows[np.abs(y[rows] - y[rows].mean(axis=0)).sum(axis=1).argmin()]
        steps = (y[rows] - y[start]) / [right - left, top - bottom]
        for axis, sign, key in ((0, 1, "ArrowRight"), (0, -1, "ArrowLeft"), (1, 1, "ArrowUp"), (1, -1, "ArrowDown")):
            along, across = sign * steps[:, axis], np.abs(steps[:, 1 - axis])
            for chosen in ("", "1"):
                fits = (along > 0) & (across <= along) & ((chosen == "") | (labels[rows] == NAMES[1]))
                nearest = rows[np.where(fits, (steps**2).sum(axis=1), np.inf).argmin()]
                query = {"from": start, "toward": key, "component": 1, "chosen": chosen}
                answer = ask(server, "row.json", **query)
                assert (answer and answer["row"]) == (nearest if fits.any() else None)
        highest = rows[y[rows, 1].argmax()]
        assert ask(server, "row.json", component=1, **{"from": highest, "toward": "ArrowUp"}) is None

    def test_steps_go_to_the_shown_rows_before_and_after(self, server, run):
        steps = [(-1, 1, 0), (0, 1, 1), (6, 1, 8), (8, -1, 6), (0, -1, 299), (299, 1, 0)]
        for start, by, expected in steps:
            assert ask(server, "row.json", **{"from": start, "by": by})["row"] == expected
        for start, by, expected in ((-1, 1, 200), (299, 1, 200), (200, -1, 299)):
            assert ask(server, "row.json", component=1, **{"from": start, "by": by})["row"] == expected
        of_class = np.flatnonzero((run[1] == NAMES[1]) & (np.arange(300) > 42))
        assert ask(server, "row.json", chosen="1", **{"from": 42, "by": 1})["row"] == of_class[0]

    def test_tile_is_a_png_of_the_size(self, server):
        corners = ask(server, "fit.json")["view"]
        status, headers, content = get(server, "tile.png", part=",".join(map(str, corners)), size="300,200")
        assert (status, headers["Content-Type"]) == (200, "image/png")
        picture = Image.open(io.BytesIO(content))
        assert picture.size == (300, 200)
        assert (np.asarray(picture)[..., 3] > 0).any()

    def test_selected_points_keep_their_colour_and_the_others_fade(self, server, run):
        labels = run[1]
        corners = ask(server, "fit.json", component=1)["view"]
        number = select(server, row=250)["selection"]
        at = ask(server, "search.json", component=1, **{"in": "row", "text": "250"})["record"]["at"]
        place = [
            int(300 * (at[0] - corners[0]) / (corners[1] - corners[0])),
            int(200 * (corners[3] - at[1]) / (corners[3] - corners[2])),
        ]
        query = {"part": ",".join(map(str, corners)), "size": "300,200", "component": 1}
        plain, chosen, other = (
            Image.open(io.BytesIO(get(server, "tile.png", selection=selection, **query)[2])).getpixel(tuple(place))
            for selection in (0, number, select(server, row=251)["selection"])
        )
        color = {entry["name"]: entry["color"] for entry in ask(server, "key.json")["entries"]}[labels[250]]
        assert chosen == (*bytes.fromhex(color[1:]), 255)
        assert other[3] <= 0.2 * plain[3]

    def test_selection_is_summed_up(self, server, run):
        """Counts by class, and means of the columns of the input beside those of all rows."""
        shown = np.isfinite(run[0].read_all("embedding")).all(axis=1)
        summary = select(server, row=250)
        total = int((run[1][shown] == run[1][250]).sum())
        assert summary["classes"] == {"label": "kind", "rows": [[run[1][250], 1, total]]}
        f0 = run[0].read_all("_work/raw")[:, 0]
        mean = next(row for row in summary["means"] if row[0] == "f0")
        assert [float(text) for text in mean[1:]] == pytest.approx([f0[250], f0[shown].mean()], rel=1e-3)
        assert ask(server, "summary.json", selection=summary["selection"])["means"] == summary["means"]

    def test_legend_counts_all_rows(self, server, run):
        entries = ask(server, "key.json")["entries"]
        embedded = np.isfinite(run[0].read_all("embedding")).all(axis=1)
        counts = {name: int((run[1][embedded] == name).sum()) for name in NAMES}
        assert {entry["name"]: entry["count"] for entry in entries} == counts
        assert ask(server, "key.json", color=0)["kind"] == "scale"
        assert ask(server, "key.json", color=0)["names"] == []
        assert ask(server, "key.json", color=-1)["kind"] == "plain"

    @pytest.mark.parametrize("component", [-1, 0, 1])
    def test_names_of_classes_are_within_the_shown_component(self, server, run, component):
        """Each name points to a row of its class in the component, or in each of them; side by side, they are moved."""
        of_row = run[0].read_all("component")
        answer = ask(server, "key.json", component=component)
        names = sorted(entry["name"] for entry in answer["entries"])
        assert sorted(name["name"] for name in answer["names"]) == sorted(names * (2 if component < 0 else 1))
        named = set()
        for name in answer["names"]:
            at = f"{name['x']},{name['y']}"
            row = ask(server, "near.json", component=component, at=at, reach="1e-5,1e-5")["row"]
            assert run[1][row] == name["name"]
            named.add((of_row[row], name["name"]))
        assert len(named) == len(answer["names"])


class TestSecurity:
    def test_listens_on_the_loopback_address_only(self, server):
        assert server.server_address[0] == "127.0.0.1"

    @pytest.mark.parametrize(
        "host", ["", "evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.", "0.0.0.0:{port}"]
    )
    def test_refuses_other_host_names(self, server, host):
        status, _, content = get(server, host=host)
        assert status == 403
        assert b"<html" not in content

    @pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:9", "127.0.0.1"])
    def test_answers_names_of_this_machine_and_tunnels(self, server, host):
        assert get(server, host=host)[0] == 200

    @pytest.mark.parametrize(
        "path",
        [
            *("*", "/", "/tile.png", "/other/", "/../../etc/passwd", "{word}/../zarr.json", "{word}/zarr.json"),
            *("{word}/report/index.html", "{word}//etc/passwd", "{word}/%2e%2e/x"),
        ],
    )
    def test_other_names_are_not_served(self, server, path):
        word = urlsplit(server.url).path.rstrip("/")
        assert get(server, path=path.format(word=word))[0] == 404

    @pytest.mark.parametrize(
        ("name", "query"),
        [
            ("fit.json", {"x": 99}),
            ("fit.json", {"x": "a"}),
            ("fit.json", {"component": 5}),
            ("tile.png", {"part": "0,1,0", "size": "10,10"}),
            ("tile.png", {"part": "1,0,0,1", "size": "10,10"}),
            ("tile.png", {"part": "nan,1,0,1", "size": "10,10"}),
            ("tile.png", {"part": "0,1,0,1"}),
            ("tile.png", {"part": "0,1,0,1", "size": "1e400,10"}),
            ("near.json", {"at": "0,0", "reach": "0,1"}),
            ("key.json", {"color": 50}),
            ("select.json", {"change": "add", "polygon": "1,2,3"}),
            ("selection.csv", {"selection": 2**40}),
            ("select.json", {"change": "replace"}),
            ("select.json", {"change": "all", "row": 1}),
            ("search.json", {"in": 99, "text": "a"}),
            ("row.json", {"from": 1, "toward": "Enter"}),
            ("row.json", {"from": "x", "by": 1}),
            ("select.json", {"change": "add", "polygon": "1,2", "chosen": "x"}),
        ],
    )
    def test_wrong_parameters_are_named(self, server, name, query):
        status, _, content = get(server, name, **query)
        assert status == 400
        assert content

    @pytest.mark.parametrize(("host", "path"), [("[", None), ("[::", None), ("127.0.0.1", "http://[/")])
    def test_addresses_that_cannot_be_read_have_an_answer(self, server, host, path):
        assert get(server, host=host, path=path)[0] == 400

    @pytest.mark.parametrize(
        ("name", "query", "expected"),
        [
            ("tile.png", {"part": "-1e308,1e308,0,1", "size": "10,10"}, 400),
            ("tile.png", {"part": "-1e30,1e30,-1e30,1e30", "size": "10,10"}, 200),
            ("tile.png", {"part": "0,5e-324,0,5e-324", "size": "10,10"}, 200),
            ("near.json", {"at": "1e30,-1e30", "reach": "1e-300,1e-300"}, 200),
            ("select.json", {"change": "add", "polygon": "1e30,1e30,-1e30,1e30,1e-30,-1e30"}, 200),
        ],
    )
    def test_very_large_and_small_numbers_give_no_warnings(self, server, recwarn, name, query, expected):
        assert get(server, name, **query)[0] == expected
        assert [str(warning.message) for warning in recwarn] == []

    def test_headers_forbid_other_pages_to_use_answers(self, server):
        _, headers, content = get(server)
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
        assert b"default-src 'none'" in content

    def test_huge_tiles_are_made_smaller(self, server):
        _, _, content = get(server, "tile.png", part="0,1,0,1", size="100000,1")
        assert Image.open(io.BytesIO(content)).size == (4096, 1)

    def test_each_server_has_its_own_word(self, server):
        with Server(server.run, 0) as other:
            assert other.word != server.word
            assert len(other.word) >= 20


class TestCommand:
    def test_port_in_use(self, run):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            message = refused(2, "explore", run[0].url, "--port", str(port), "--no-browser")
        assert message.startswith(f"--port {port}: cannot be used (Address already in use); choose another port")

    def test_store_without_embedding(self, tmp_path):
        assert "no run has been started there" in refused(2, "explore", tmp_path / "none.zarr", "--no-browser")

    @pytest.mark.parametrize(("display", "opens"), [(":0", True), (None, False)])
    def test_browser_is_opened_where_there_are_windows(self, run, monkeypatch, display, opens):
        opened, printed = [], []
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(name, raising=False)
        if display is not None:
            monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setattr("sys.platform", "linux")
        monkeypatch.setattr("webbrowser.open", opened.append)
        monkeypatch.setattr(Server, "serve_forever", lambda self: None)
        explore(run[0], 0, True, printed.append)
        assert opened == printed * opens
        explore(run[0], 0, False, printed.append)
        assert len(opened) == opens

    def test_unfinished_run(self, run, tmp_path):
        shutil.copytree(run[0].url, tmp_path / "run.zarr")
        shutil.rmtree(tmp_path / "run.zarr" / "_done" / "solve_embedding")
        message = refused(2, "explore", tmp_path / "run.zarr", "--no-browser")
        assert "has no finished embedding of its config (`lle status` shows its progress); run the job again" in message

    @pytest.mark.slow
    def test_interrupt_ends_it_with_exit_code_0(self, run):
        command = [sys.executable, "-m", "lle", "explore", run[0].url, "--no-browser"]
        environment = {**os.environ, "DISPLAY": ""}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            url, hint = (process.stdout.readline().strip() for _ in range(2))
            host, port = urlsplit(url).hostname, urlsplit(url).port
            connection = http.client.HTTPConnection(host, port, timeout=60)
            connection.request("GET", urlsplit(url).path)
            assert connection.getresponse().status == 200
            connection.close()
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
        assert host == "127.0.0.1"
        assert process.returncode == 0, errors
        assert (hint, rest.strip()) == ("Ctrl-C ends it.", "ended")
        assert errors == ""

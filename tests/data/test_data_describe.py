"""Looking at data: the numbers, the pictures, the command."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coterie.core.errors import InvalidInput
from coterie.coupling import graph as graphs
from coterie.data import describe, from_arrays, get_source
from coterie.data.federation import Federation, Split
from coterie.data.given import load_named, parse_options


def split(parts: list[list[int]]) -> Split:
    y = np.concatenate([np.array(p, np.int32) for p in parts])
    return Split(
        np.zeros((len(y), 2), np.float32),
        y,
        np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64),
    )


def toy() -> Federation:
    """Two clients alike in nothing, a third like both, without test data."""
    train = split([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1]])
    return Federation(
        "toy", train, split([[], [], []]), split([[0, 0, 1, 1], [1, 1], []]), classes=2
    )


def test_numbers_by_hand() -> None:
    d = describe.describe(toy())
    assert d.clients == 3
    assert d.labels is not None
    assert d.labels.tolist() == [1, 1, 2]
    # Everybody's distribution is (½, ½): distances ½, ½, 0.
    assert d.heterogeneity == pytest.approx(1 / 3)
    # Client 0 answers 0 and is right half the time, client 1 always; client 2 has nothing to be
    # tested on.
    assert d.majority == pytest.approx(0.75)
    assert d.majority_weighted == pytest.approx(4 / 6)
    assert d.warning == "Client 2 of 'toy' has no test data and is left out of means."
    assert "nan" not in str(d.rows()).lower()


def test_nobody_has_test_data() -> None:
    fed = Federation("toy", toy().train, split([[], [], []]), split([[], [], []]), classes=2)
    d = describe.describe(fed)
    assert d.majority is None
    assert ("majority-class score", "no client has test data") in d.rows()


def test_label_distance_limits() -> None:
    assert describe.label_distance(np.array([[5, 5], [9, 9]])).tolist() == [0, 0]
    apart = describe.label_distance(np.eye(100))
    np.testing.assert_allclose(apart, 0.99)


def test_regression_heterogeneity() -> None:
    x = np.zeros((40, 1), np.float32)
    owner = np.repeat([0, 1], 20)
    apart = from_arrays("t", x, owner.astype(np.float32), owner, task="regression")
    alike = from_arrays("t", x, np.zeros(40, np.float32), owner, task="regression")
    assert describe.describe(apart).heterogeneity == pytest.approx(1)
    assert describe.describe(alike).heterogeneity == 0
    assert describe.describe(apart).majority is None


def png_size(data: bytes) -> tuple[int, int]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def test_the_heat_map_shows_who_has_what() -> None:
    from io import BytesIO

    from matplotlib.image import imread

    same = describe.heat_map(toy())
    width, height = png_size(same)
    assert width > 500
    assert height > 300
    swapped = Federation(
        "toy", split([[1, 1, 1, 1], [0, 0, 0, 0], [0, 1]]), toy().validation, toy().test, classes=2
    )
    other = describe.heat_map(swapped)
    assert same == describe.heat_map(toy())
    assert np.abs(imread(BytesIO(same)) - imread(BytesIO(other))).max() > 0.1


@pytest.mark.parametrize("kind", ["complete", "ring", "similar", "weighted", "nearest"])
def test_graph_drawings(kind: str) -> None:
    fed = get_source("digits").load(0)
    assert min(png_size(describe.graph_drawing(fed, graphs.build(kind, fed)))) > 500


def test_regression_pictures() -> None:
    rng = np.random.default_rng(0)
    fed = from_arrays(
        "t",
        np.zeros((60, 1), np.float32),
        rng.normal(size=60).astype(np.float32),
        np.repeat([0, 1, 2], 20),
        task="regression",
    )
    png_size(describe.heat_map(fed))
    png_size(describe.graph_drawing(fed, graphs.build("ring", fed)))


def test_the_page_is_self_contained_and_escaped() -> None:
    fed = Federation("<b>toy</b>", toy().train, toy().validation, toy().test, classes=2)
    text = describe.page(describe.describe(fed), {"a & b": b"\x89PNG"})
    assert "<b>" not in text
    assert "a &amp; b" in text
    assert "data:image/png;base64,iVBORw==" in text
    assert "http" not in text


def test_key_value_options() -> None:
    assert parse_options(
        ["clients=20", "split=labels", "mean-size=5", "standardise=false", "alpha=1e-1"]
    ) == {
        "clients": 20,
        "split": "labels",
        "mean_size": 5,
        "standardise": False,
        "alpha": 0.1,
    }
    with pytest.raises(InvalidInput, match="the option 'clients' is not of the form key=value"):
        parse_options(["clients"])


def test_own_tables_by_path(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    file.write_text(
        "1,heat,label\n" + "".join(f"{i % 2},{i},{'ab'[i % 3 > 0]}\n" for i in range(40))
    )
    fed = load_named(str(file), ["client=1", "target=label"], 0)
    assert (fed.name, fed.clients, fed.input_shape) == ("readings", 2, (1,))
    named = load_named("table", [f"path={file}", "client=1", "target=label"], 0)
    np.testing.assert_array_equal(named.train.x, fed.train.x)
    with pytest.raises(
        InvalidInput, match="the data set 'digts' is unknown; did you mean 'digits'"
    ):
        load_named("digts", [], 0)


def test_show(tmp_path: Path) -> None:
    from coterie.cli.data import app

    done = CliRunner().invoke(
        app,
        [
            "show",
            "digits",
            "clients=10",
            "--graph",
            "similar",
            "--out",
            str(tmp_path),
            "--rows",
            "2",
        ],
        env={"COLUMNS": "160"},
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    for part in (
        "clients N",
        "1,797",
        "labels per client",
        "majority-class score",
        "heterogeneity",
        "similar graph: 10 clients",
        "… 8 more",
    ):
        assert part in done.output
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "digits-graph.png",
        "digits.html",
        "digits.png",
    ]
    page = (tmp_path / "digits.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2


def test_show_refuses_by_name(tmp_path: Path) -> None:
    from coterie.cli.data import app

    with pytest.raises(InvalidInput, match="'clinets' is unknown; did you mean 'clients'"):
        CliRunner().invoke(
            app, ["show", "digits", "clinets=10", "--out", str(tmp_path)], catch_exceptions=False
        )
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="the pictures cannot be written to"):
        CliRunner().invoke(
            app, ["show", "digits", "--out", str(tmp_path / "file")], catch_exceptions=False
        )


def test_list_names_every_source() -> None:
    from coterie.cli.data import app

    done = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}, catch_exceptions=False)
    for name in (
        "mnist",
        "fashion-mnist",
        "emnist",
        "cifar10",
        "har",
        "vehicle",
        "synthetic",
        "digits",
        "table",
        "folder",
    ):
        assert f"│ {name} " in done.output


def test_every_source_gives_its_options_back() -> None:
    from coterie.data import SOURCES

    for name in set(SOURCES) - {"table", "folder"}:
        located = name in ("hugging-face", "mapped", "text")
        made = get_source(name, {"path": "many"} if located else None)
        assert get_source(name, made.to_config()) == made
        assert made.summary

"""The page of a report as a file: whole, small, and deaf to hostile names; test_browser.py opens
it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from coterie.coupling.graph import from_matrix, ring
from coterie.report.comparison import Comparison
from coterie.report.drawn import MOST_CLIENTS, drawn, thinned
from coterie.report.layout import places
from coterie.report.measures import sheets
from coterie.report.page import page
from coterie.report.plots import gains_of
from tests.support.reports import HOSTILE, comparison

ASSETS = files("coterie.report").joinpath("assets")
LARGEST = 3_000_000


@pytest.fixture(scope="module")
def small() -> Comparison:
    return comparison(names=[HOSTILE, "ward a", "ward b", "ward b", "", "é"])


@pytest.fixture(scope="module")
def text(small: Comparison) -> str:
    return page(small, f"# {HOSTILE}", sheets(small), {"FedU": ring(6)})


def data_of(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found)


def test_a_hostile_name_is_text_wherever_it_stands(text: str) -> None:
    assert HOSTILE not in text
    assert "<img" not in text
    assert text.count(html.escape(HOSTILE)) > 5
    data = data_of(text)
    assert data["clients"]["names"][0] == HOSTILE
    assert data["methods"][3]["label"] == HOSTILE
    assert data["labels"]["names"][0] == HOSTILE


def test_nothing_is_loaded_and_no_other_script_runs(text: str) -> None:
    assert not re.search(r"""<(script|link|img|iframe)[^>]+(src|href)=""", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'; ")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 5
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_what_is_not_ours_is_what_its_list_says_and_its_licences_travel(text: str) -> None:
    listed = re.findall(r"\| (\S+\.js) \|.*`(\w{64})`", ASSETS.joinpath("SOURCES.md").read_text())
    assert dict(listed).keys() == {"vega.min.js", "vega-lite.min.js"}
    for name, digest in listed:
        assert hashlib.sha256(ASSETS.joinpath(name).read_bytes()).hexdigest() == digest
    assert "University of Washington Interactive Data Lab" in text
    assert "Redistributions in binary form must reproduce" in text
    assert "Mike Bostock" in text


def test_the_numbers_are_those_of_the_comparison(small: Comparison) -> None:
    data = drawn(small, {"FedU": ring(6)})
    entry, curve = small.entries[2], data["curves"][2]
    means = 100 * np.array([o.scores[o.view].mean(1) for o in entry.outcomes])
    assert curve["mean"] == pytest.approx(means.mean(0), abs=1e-3)
    assert curve["std"] == pytest.approx(means.std(0, ddof=1), abs=1e-3)
    assert curve["rounds"] == [0, 5, 10, 15, 20, 25, 30, 35]
    assert curve["bytes"][1] == 8000
    assert curve["gradients"][1] == 20
    scores, local = (np.array(data["clients"]["scores"][i]) for i in (2, 0))
    assert scores - local == pytest.approx(100 * gains_of(entry), abs=1e-2)
    assert data["methods"][2]["against"] == 0
    assert data["methods"][0]["against"] is None
    assert np.array(data["labels"]["counts"]).sum() == 60
    assert data["graphs"][2]["all"] == 6
    assert [g is None for g in data["graphs"]] == [True, True, False, True]
    assert [list(e[:2]) for e in data["graphs"][2]["edges"]][:2] == [[0, 1], [0, 5]]


def test_many_clients_and_rounds_make_no_large_page() -> None:
    many = comparison(clients=5000, evaluations=300, seeds=1)
    made = page(many, "", sheets(many))
    assert len(made.encode()) < LARGEST
    data = data_of(made)
    assert len(data["clients"]["ids"]) <= MOST_CLIENTS
    local = many.entries[0].outcomes[0].last()
    assert int(local.argmin()) in data["clients"]["ids"], "the worst client is always there"
    assert "of 5,000 clients are drawn" in made


def test_thinning_keeps_both_ends() -> None:
    assert thinned(5, 40).tolist() == [0, 1, 2, 3, 4]
    assert thinned(1, 40).tolist() == [0]
    kept = thinned(1000, 40)
    assert (len(kept), kept[0], kept[-1]) == (40, 0, 999)


def test_a_graph_is_drawn_the_same_every_time_and_kin_stand_together() -> None:
    blocks = np.kron(np.eye(2), np.ones((5, 5))) - np.eye(10)
    blocks[0, 9] = blocks[9, 0] = 0.05
    graph = from_matrix(blocks)
    at = places(graph)
    assert np.array_equal(at, places(graph))
    assert at.min() >= 0
    assert at.max() <= 1
    far = np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1))
    assert far[:5, :5].max() < far[:5, 5:].min()

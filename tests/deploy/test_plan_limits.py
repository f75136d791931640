"""Plans that others have written: what makes no sense is refused before anything is made of it."""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path

import pytest

from coterie.core import toml
from coterie.core.errors import InvalidInput
from coterie.coupling.graph import Graph
from coterie.deploy.plan import Plan
from coterie.deploy.site import Site
from coterie.runs import experiment

PLAN = """
name = "wards"
clients = ["ward-a", "ward-b"]
[problem]
features = ["x", "y"]
target = "z"
labels = ["no", "yes"]
[method]
name = "fedavg"
"""


def write(folder: Path, more: str) -> Path:
    (folder / "plan.toml").write_text(PLAN + more)
    return folder / "plan.toml"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("deep = " + "[" * 5000 + "]" * 5000, "in each other too deeply"),
        (f"[{'.'.join('a' * 100_000)}]", "in each other too deeply"),
        ("[[" + '"a b" . ' * 100_000 + "a]]", "in each other too deeply"),
        (f"{'.'.join('a' * 100_000)} = 1", "in each other too deeply"),
        (f"x = {{ {'.'.join('a' * 100_000)} = 1 }}", "in each other too deeply"),
        ("local_steps = " + "9" * 5000, "a number with too many digits"),
        ("local_steps = " + "9" * 40, "method.local_steps is a number of 40 digits"),
        ("[training]\nrounds = 1000000000000", "rounds is 1000000000000, but must be at most"),
        ('[model]\nname = "mlp"\nhidden = [1000000, 1000000]', "parameters, but a plan's may have"),
        (f'[model]\nname = "mlp"\nhidden = {[1] * 3000}', "model.hidden is a list of 3000"),
    ],
    ids=[
        "deep",
        "header",
        "headers",
        "key",
        "inner key",
        "digits",
        "large",
        "rounds",
        "model",
        "layers",
    ],
)
def test_what_is_too_much_is_refused_at_once(tmp_path: Path, more: str, sentence: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput, match=sentence) as refused:
        Plan.from_file(write(tmp_path, more))
    assert time.process_time() - begun < 5
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{"a." * 500}"',
        f"x = '{'.' * 500}' # {'a.' * 500}",
        'x = """\n' + "a." * 500 + '\\""" ' + "a." * 500 + '"""""',
        "x = '''\n" + "a." * 500 + "\\'''",
        f"x = [{'1.5, ' * 500}]",
        "\n".join(f"[a{i}.b.c]\nd.e = 1.5" for i in range(200)),
        f"{'.'.join('a' * 100)} = 1",
    ],
    ids=["text", "comment", "long text", "long literal", "list", "tables", "deepest"],
)
def test_dots_that_are_no_depth_count_for_nothing(text: str) -> None:
    assert toml.tables(text.encode(), "the plan") == tomllib.loads(text)


@pytest.mark.parametrize("some", ['x = "' + '\\"' * 300_000, 'x = """' + '\\"""' * 200_000])
def test_strings_that_never_end_are_looked_at_once(some: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput, match="the plan is not valid TOML"):
        toml.tables(some.encode(), "the plan")
    assert time.process_time() - begun < 10


def test_200000_clients_may_have_a_graph_of_few_edges() -> None:
    """Not one of 4·10¹⁰ pairs; and refused, where it looks at all of them, by name and number."""
    config = tomllib.loads(PLAN.replace("fedavg", "fedu"))
    config["clients"] = [f"c{k}" for k in range(200_000)]
    edges = [["c1", "c0", 2.0], ["c0", "c1", 0.5], *(["c0", f"c{k}"] for k in range(2, 20_000))]
    begun = time.process_time()
    graph = Plan.from_config(config | {"graph": {"edges": edges}}).coupling
    assert time.process_time() - begun < 20
    assert isinstance(graph, Graph)
    assert (graph.clients, graph.edges) == (200_000, 19_999)
    assert graph.weights[0, 1] == graph.weights[1, 0] == 0.5  # the last word on an edge counts
    with pytest.raises(InvalidInput, match=r"the graph is 'complete'.*there are 200,000"):
        Plan.from_config(config)


def test_a_file_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "LARGEST_FILE", 100)
    with pytest.raises(InvalidInput, match="has more than 100 bytes"):
        Plan.from_file(write(tmp_path, ""))


@pytest.mark.parametrize("key", ["module", "loss"])
@pytest.mark.parametrize("allowed", ["", "[]", '["planted", "evi", "evil.deep.er"]'])
def test_a_plan_imports_no_module_that_the_site_does_not_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, allowed: str
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    good = "" if key == "module" else 'module = "planted:make"\n'
    write(tmp_path, f'[model]\nname = "torch"\n{key} = "evil.deep:make"\n{good}')
    site = tmp_path / "site.toml"
    rest = '[data]\npath = "data.npz"\n'
    modules = f"modules = {allowed}\n" if allowed else ""
    site.write_text(f'plan = "plan.toml"\nname = "ward-a"\n{modules}{rest}')
    with pytest.raises(InvalidInput, match=f"the plan's model.{key} is 'evil.deep:make'.*modules"):
        Site.from_file(site)
    assert "evil" not in sys.modules


def test_modules_must_be_names(tmp_path: Path) -> None:
    write(tmp_path, "")
    site = tmp_path / "site.toml"
    site.write_text('plan = "plan.toml"\nname = "ward-a"\nmodules = "all"\n[data]\npath = "d"\n')
    with pytest.raises(InvalidInput, match="modules is 'all', but must be a list of names"):
        Site.from_file(site)

"""Plans that others have written: what makes no sense is refused before anything is made of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from coterie.core.errors import InvalidInput
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
        ("local_steps = " + "9" * 5000, "a number with too many digits"),
        ("local_steps = " + "9" * 40, "method.local_steps is a number of 40 digits"),
        ("[training]\nrounds = 1000000000000", "rounds is 1000000000000, but must be at most"),
        ('[model]\nname = "mlp"\nhidden = [1000000, 1000000]', "parameters, but a plan's may have"),
        (f'[model]\nname = "mlp"\nhidden = {[1] * 3000}', "model.hidden is a list of 3000"),
    ],
    ids=["deep", "digits", "large", "rounds", "model", "layers"],
)
def test_what_is_too_much_is_refused_at_once(tmp_path: Path, more: str, sentence: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidInput, match=sentence) as refused:
        Plan.from_file(write(tmp_path, more))
    assert time.process_time() - begun < 5
    assert len(str(refused.value)) < 400


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

"""Certificates that are renewed in a live run, and lists of the revoked that are passed on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from coterie import Federation
from coterie.core.errors import InvalidInput
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.identity import NodeIdentity, Revocations
from coterie.deploy.zenoh.passport import Passport
from tests.support import peering
from tests.support.hub_lab import NAMES, Lab, make_plan, started, wait_for
from tests.support.town_checks import WELL, check_equal


@pytest.fixture
def office(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys", "lab")
    keys.issue(tmp_path / "keys", "ward-a")
    return tmp_path


def carried(office: Path, name: str = "ward-a") -> Path:
    """A machine's own copy of its folder of keys."""
    return Path(shutil.copytree(office / "keys" / "nodes" / name, office / "machine"))


def test_a_list_that_is_passed_on_is_taken_if_the_ca_has_signed_a_newer_one(office: Path) -> None:
    here = carried(office)
    mine, old = Revocations(here / "ca.pem", here / "crl.pem"), (here / "crl.pem").read_bytes()
    keys.issue(office / "keys", "ward-b")
    keys.revoke(office / "keys", "ward-b")
    new = (office / "keys" / "crl.pem").read_bytes()
    assert mine.offer(new)
    assert mine.revoked_names() == {"ward-b"}
    assert (here / "crl.pem").read_bytes() == new
    assert not mine.offer(new)
    keys.init(office / "other", "lab")
    for bad in (old, (office / "other" / "crl.pem").read_bytes(), b"", b"x" * 1000, new[:-50]):
        with pytest.raises(InvalidInput, match=r"older than|not signed|not a revocation list"):
            mine.offer(bad)
    assert mine.newest() == (2, new)
    assert Revocations(here / "ca.pem", here / "crl.pem").revoked_names() == {"ward-b"}


def test_a_new_certificate_is_taken_up_when_all_of_it_is_there(office: Path) -> None:
    here, said = carried(office), list[str]()
    passport = Passport.shown(NodeIdentity.load(here), said.append)
    assert passport.renewed() is None
    new = keys.issue(office / "keys", "ward-a", renew=True)
    shutil.copy(new / "crl.pem", here)
    passport.check()  # the new one is on its way
    passport.check()
    assert len(said) == 1
    assert "was renewed, and the new one is not here yet" in said[0]
    shutil.copy(new / "node.pem", here)  # and not its key
    assert passport.renewed() is None
    assert passport.renewed() is None
    assert len(said) == 2
    assert said[1].endswith("The certificate read before stays in use.")
    shutil.copy(new / "node.key", here)
    fresh = passport.renewed()
    assert fresh is not None
    assert fresh.identity.serial == NodeIdentity.load(new).serial != passport.identity.serial
    fresh.check()
    assert fresh.renewed() is None
    keys.revoke(office / "keys", "ward-a")
    shutil.copy(new / "crl.pem", here)
    with pytest.raises(InvalidInput, match="is revoked; this participant stops"):
        fresh.check()


def test_keys_of_somebody_else_are_not_taken_up(office: Path) -> None:
    here, said = carried(office), list[str]()
    passport = Passport.shown(NodeIdentity.load(here), said.append)
    other = keys.issue(office / "keys", "ward-b")
    for name in ("node.pem", "node.key"):
        shutil.copy(other / name, here)
    assert passport.renewed() is None
    assert "are of 'ward-b' now; they are not used" in said[0]


@pytest.mark.slow
def test_all_are_renewed_in_a_live_run_and_no_round_is_lost(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=250)
    l = hub_lab(plan)
    started(l, plan)
    for name in ("ward-a", "hub", "ward-c"):
        keys.issue(l.folder / "keys", name, days=100, renew=True)
        labels = ("up", "run") if name == "hub" else (name,)
        new = f"the certificate of '{name}' is new"
        wait_for(lambda: all(new in l.said(label) for label in labels))  # noqa: B023
        t = l.round(plan)
        wait_for(lambda: l.round(plan) > t or l.processes["run"].poll() is not None)  # noqa: B023
    assert l.processes["run"].poll() is None, "the run was over too soon; the test shows nothing"
    for label in ("run", *NAMES):
        assert l.finish(label, 500) == 0, l.logs()
    l.assert_equal(plan)
    assert all(c["rejected"] == 0 for c in l.status(plan)["clients"])
    ends = NodeIdentity.load(l.folder / "keys" / "nodes" / "hub")
    assert ends.expires - ends.ca_expires < timedelta(0)


@pytest.mark.slow
def test_a_peer_is_renewed_in_a_live_run(tmp_path: Path) -> None:
    plan = peering.make_plan(peering.the_digits(), rounds=400, eval_every=1000)
    with peering.peer_town(tmp_path, plan) as town:
        town.start(*peering.NAMES)
        town.until(lambda: town.status("p2")["round"] >= 20, "round 20")
        keys.issue(town.keys, "p2", days=100, renew=True)
        town.until(lambda: "the certificate of 'p2' is new" in town.log("p2"), "it is taken up")
        t = town.status("p2")["round"]
        assert t < 400, "the run was over too soon; the test shows nothing"
        assert town.wait() == WELL, town.logs()
        check_equal(town, plan, 1e-4)
        near = [n for name in peering.NAMES for n in town.status(name)["neighbours"]]
        assert all(n["rejected"] == 0 for n in near)

"""A real hub and its clients: nonsense, the revoked, strangers, twins, a full disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from coterie import Federation
from coterie.deploy.keys import authority as keys
from tests.support.hub_lab import Lab, lab_of, started, wait_for

pytestmark = pytest.mark.slow


def test_nonsense_is_rejected_counted_and_changes_nothing(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = lab_of(hub_lab, fed, rounds=3)
    kinds = ["nan", "shape", "round", "size", "garbage", "other", "replay"]
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, list(kinds))
    l.run(plan)
    assert l.finish() == 0, l.logs()
    assert [c["rejected"] for c in l.status(plan)["clients"]] == [0, 0, len(kinds)]
    assert l.said("run").count("rejected a message of ward-c") == len(kinds)
    for words in (
        "NaN or infinity",
        "came in round 1",
        "must have at most",
        "not JSON",
        "says that it has",
    ):
        assert words in l.log(plan)
    l.assert_equal(plan)


def test_a_revoked_client_does_not_count_from_then_on(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """Its own process reads the list, too, and stops; a thief's would not."""
    l, plan = lab_of(hub_lab, fed, rounds=400, eval_every=1000)
    crl = l.folder / "keys" / "nodes" / "ward-c" / "crl.pem"
    thief = shutil.copytree(crl.parent, l.folder / "thief")
    l.site("ward-c", plan, keys="../thief")
    started(l, plan)
    keys.revoke(l.folder / "keys", "ward-c")
    wait_for(lambda: "ward-c is revoked" in l.said("run"), 60)
    revoked = l.round(plan)
    assert l.finish() == 0, l.logs()
    rounds = {c["name"]: c["rounds"] for c in l.status(plan)["clients"]}
    assert rounds["ward-a"] == rounds["ward-b"] == 400
    assert 2 <= rounds["ward-c"] <= revoked + 1
    assert "may take part" in l.said("up").rpartition("ward-c")[2]  # opened anew, without it
    shutil.copy(l.folder / "keys" / "crl.pem", thief)
    assert l.finish("ward-c", 60) == 2, l.logs()
    assert "is revoked" in l.said("ward-c")


def test_strangers_twins_and_expired_certificates_are_refused(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = lab_of(hub_lab, fed, rounds=2)
    shutil.copytree(l.folder / "keys", l.folder / "other-keys")
    l.up()
    l.join("ward-a")
    wait_for(lambda: "is at the hub" in l.said("ward-a"))
    # Keys of another federation.
    keys.init(l.folder / "foreign", "lab")
    keys.issue(l.folder / "foreign", "ward-b")
    foreign = l.site("ward-b", plan, "-foreign", keys="../foreign/nodes/ward-b")
    l.start("stranger", "client", "join", foreign)
    wait_for(lambda: "its certificate is of another federation" in l.said("stranger"))
    # The same identity twice: with the same folder, and with a copy of the keys and another folder.
    twin = l.start("twin", "client", "join", l.folder / "ward-a" / "fedu.toml")
    assert twin.wait(240) == 2
    assert "another process is working" in l.said("twin")
    # A certificate that was valid until yesterday.
    yesterday = datetime.now(UTC) - timedelta(days=2)
    keys.issue(l.folder / "other-keys", "ward-c", renew=True, days=1, now=yesterday)
    old = l.site("ward-c", plan, "-expired", keys="../other-keys/nodes/ward-c")
    assert l.start("expired", "client", "join", old).wait(240) == 2
    assert "expired on" in l.said("expired")
    # A second hub in the same folder, and a second run of the same plan.
    l.start("up again", "hub", "up", "--keys", l.folder / "keys", "--folder", l.folder / "hub")
    assert l.finish("up again", 60) == 2
    assert "another process is working" in l.said("up again")
    l.run(plan)
    wait_for(lambda: "ward-a is there" in l.said("run"))
    l.run(plan, "run again")
    assert l.finish("run again", 60) == 2
    assert "another process is working" in l.said("run again")
    l.join("ward-b", "ward-c")
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan)


def test_a_thief_with_copied_keys_is_noticed(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    """Two answers that differ are not taken: the run waits until one is stopped, and is exact."""
    l, plan = lab_of(hub_lab, fed, rounds=60)
    shutil.copytree(l.folder / "keys" / "nodes" / "ward-a", l.folder / "copied")
    l.up()
    l.join("ward-a", "ward-b")
    l.run(plan)
    wait_for(lambda: "ward-b is there" in l.said("run"))
    l.start("thief", "client", "join", l.site("ward-a", plan, "-copied", keys="../copied"))
    wait_for(lambda: "is at the hub" in l.said("thief"))
    l.join("ward-c")
    wait_for(
        lambda: "answer under this name" in l.said("run") or l.processes["run"].poll() is not None
    )
    l.kill("thief")
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan)


def test_a_full_disk_stops_only_its_client_and_only_for_a_while(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    l, plan = lab_of(hub_lab, fed, "pfedme", rounds=300, eval_every=1000)
    state = l.folder / "ward-b" / plan.name
    state.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "coterie-test", str(state)],
            capture_output=True,
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        started(l, plan)
        with contextlib.suppress(OSError), (state / "ballast").open("wb") as f:
            while True:
                f.write(bytes(4096))
                f.flush()
        wait_for(lambda: "ward-b cannot answer" in l.log(plan))
        assert "No space left" in l.log(plan)
        assert str(state) not in l.log(plan)  # where things lie on a client is its own business
        (state / "ballast").unlink()
        assert l.finish() == 0, l.logs()
        l.assert_equal(plan, exactly=False)
    finally:
        l.stop()
        subprocess.run(["umount", "-l", str(state)], capture_output=True)


def test_a_hub_with_nothing_but_its_own_keys(hub_lab: Callable[..., Lab], fed: Federation) -> None:
    l, plan = lab_of(hub_lab, fed, rounds=2)
    own = shutil.copytree(l.folder / "keys" / "nodes" / "hub", l.folder / "hub-keys")
    l.start("up", "hub", "up", "--keys", own, "--folder", l.folder / "hub", "--port", str(l.port))
    l.join()
    l.run(plan)
    assert l.finish() == 0, l.logs()
    l.assert_equal(plan)

"""Three clients and a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie import load
from coterie.core.files import make_folder, write_text
from coterie.deploy.demo.outcome import Row, compared, hub_bill
from coterie.deploy.demo.processes import DemoFailed, processes, round_of, wait_for
from coterie.deploy.demo.setting import Say, client_file, make_keys, make_plan
from coterie.deploy.ports import free_port
from coterie.deploy.site import save_own

HUB_METHODS: dict[str, dict[str, Any]] = {
    "lp-proj-1": {"dsub": 20, "local_rounds": 2, "inner_steps": 5},
    "fedu": {"local_steps": 10},
}


def with_hub(folder: Path, rounds: int, say: Say) -> list[Row]:
    """Three clients and a hub: lp-proj-1 and FedU, one client killed in the middle."""
    make_folder(folder)
    fed = load("digits", clients=3)
    names = [f"site-{k}" for k in range(3)]
    make_keys(folder / "keys", names, "client")
    from coterie.deploy.keys import authority as keys

    keys.issue(folder / "keys", "hub", ["localhost"], ["127.0.0.1"], role="hub")
    port = free_port()
    plans = {
        method: make_plan(method, method, options, names, fed, rounds)
        for method, options in HUB_METHODS.items()
    }
    for method, plan in plans.items():
        write_text(folder / f"{method}.toml", plan.to_toml())
    sites: dict[str, list[Path]] = {name: [] for name in names}
    for k, name in enumerate(names):
        own = folder / name
        own.mkdir()
        save_own(fed, k, own / "data.npz")
        for method in plans:
            place, file = f"127.0.0.1:{port}", f"{method}.site.toml"
            sites[name].append(client_file(own, place, f"{method}.toml", method, file))
    say(
        "Keys, plans and three clients' folders are made; bringing up the hub (mutual TLS,"
        " each client by its own certificate) and the clients …"
    )
    rows = []
    with processes(folder / "logs") as running:
        hub = running.start(
            "hub",
            "hub",
            "up",
            "--keys",
            str(folder / "keys"),
            "--folder",
            str(folder / "hub"),
            "--port",
            str(port),
        )
        for name in names:
            running.start(name, "client", "join", *map(str, sites[name]))
        wait_for("the hub", (folder / "hub" / "hub.json").is_file, 120, hub)
        say(f"{' and '.join(p.method.title for p in plans.values())}: {rounds} rounds each …")
        runs = {
            method: running.start(
                *(f"run-{method}", "hub", "run", str(folder / f"{method}.toml")),
                *("--folder", str(folder / "hub")),
            )
            for method in plans
        }
        first, victim = next(iter(plans)), names[1]
        status = folder / "hub" / first / "status.json"
        wait_for(
            "the middle of the run",
            lambda: round_of(status) >= rounds // 2,
            300,
            runs[first],
        )
        running.kill(victim)
        say(f"{victim} was killed (SIGKILL) in round {round_of(status)}; started again …")
        running.start(victim, "client", "join", *map(str, sites[victim]))
        for method, plan in plans.items():
            run = runs[method]
            wait_for(f"the end of {method}", lambda run=run: run.poll() is not None, 600)  # type: ignore[misc]
            if run.returncode or hub.poll() is not None:
                raise DemoFailed(f"{method} did not finish: {running.last_words(f'run-{method}')}")
            folders = [folder / name / method for name in names]
            bill = hub_bill(folder / "hub" / method, rounds)
            rows += compared(plan, fed, plan.coupling, names, folders, bill)
    return rows

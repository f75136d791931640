"""Client optimisers: local steps are those of optax, whatever the method adds to the gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput
from coterie.methods.optimizers import OPTIMIZERS, read_optimizer
from coterie.runs.checkpoint import Checkpoints
from coterie.runs.experiment import Contender, Experiment
from tests.support.quadratics import EXACT, N, facts, linear
from tests.support.star_runs import flat, kept, memories, trained

LR, STEPS, ROUNDS = 0.1, 3, 3
Gradient = Callable[[NDArray[Any]], NDArray[Any]]

# What optax calls the same thing; its own step size is part of it there.
SAME: dict[str, Any] = {
    "sgd": optax.sgd(LR),
    "momentum": optax.sgd(LR, momentum=0.9),
    "adam": optax.adam(LR),
    "adamw": optax.adamw(LR),
    "amsgrad": optax.amsgrad(LR),
    "adagrad": optax.adagrad(LR),
    "rmsprop": optax.rmsprop(LR),
    "yogi": optax.yogi(LR),
    "lion": optax.lion(LR, weight_decay=0.0),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_each_name_is_the_rule_that_optax_has_under_it(name: str) -> None:
    rng = np.random.default_rng(3)
    x = y = jnp.asarray(rng.normal(size=4), jnp.float32)
    rule = coterie.get_method("local", {"optimizer": {"name": name, "clip": 1e9}}).optimizer
    mine, theirs = rule.init(x), SAME[name].init(y)
    for _ in range(4):
        g = jnp.asarray(rng.normal(size=4), jnp.float32)
        u, mine = rule.direction(g, mine, x)
        x = x - LR * u
        v, theirs = SAME[name].update(g, theirs, y)
        y = optax.apply_updates(y, v)
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)


def by_hand(rule: Any, x: NDArray[Any], gradient: Gradient, fresh: bool) -> NDArray[Any]:
    """ROUNDS rounds of STEPS steps of an optax optimiser, one step after the other."""
    state = rule.init(x)
    for _ in range(ROUNDS):
        state = rule.init(x) if fresh else state
        for _ in range(STEPS):
            update, state = rule.update(jnp.asarray(gradient(x)), state, x)
            x = np.asarray(optax.apply_updates(x, update))
    return x


@pytest.mark.parametrize("state", ["fresh", "kept"])
def test_local_takes_adams_steps_with_its_state_fresh_or_kept(state: str) -> None:
    fed = linear()
    b, best = facts(fed)
    method = coterie.Local(lr=LR, local_steps=STEPS, optimizer="adam", optimizer_state=state)
    run = trained(method, fed, "linear", rounds=ROUNDS, **EXACT)
    start = np.tile(flat(run.template), (N, 1))
    along = lambda x: b * (x - best)
    with jax.enable_x64(True):
        found = by_hand(optax.adam(LR), start, along, state == "fresh")
        other = by_hand(optax.adam(LR), start, along, state != "fresh")
    mine = memories(run).x.leaves[0].reshape(N, -1)
    np.testing.assert_allclose(mine, found, rtol=1e-6)
    assert not np.allclose(mine, other, rtol=1e-3), "fresh and kept should differ here"


def test_fedprox_puts_its_term_into_the_gradient_before_the_optimiser() -> None:
    """Every client alone (a cohort of one): w is what Adam makes of the whole gradient."""
    fed = linear().subset(np.array([1]))
    b, best = facts(fed)
    method = coterie.FedProx(
        lr=LR, local_steps=STEPS, prox=2.0, optimizer="adam", optimizer_state="kept"
    )
    run = trained(method, fed, "linear", rounds=1, **EXACT)
    w = flat(run.template)
    with jax.enable_x64(True):
        rule = optax.adam(LR)
        x, state = w, rule.init(w)
        for _ in range(STEPS):
            g = b[0] * (x - best[0]) + 2.0 * (x - w)
            update, state = rule.update(jnp.asarray(g), state, x)
            x = np.asarray(optax.apply_updates(x, update))
    np.testing.assert_allclose(flat(run.hub), x, rtol=1e-6)
    np.testing.assert_allclose(kept(run)[0][-3:], flat(state[0].nu), rtol=1e-6)


def test_scaffolds_control_variate_is_the_mean_gradient_under_any_optimiser() -> None:
    """For plain steps the mean gradient is option II to rounding; under Adam it stays one, where
    (x − y)/(Rμ) would be a mean of Adam's directions.
    """
    fed = linear()
    b, best = facts(fed)
    plain = coterie.Scaffold(lr=LR, local_steps=STEPS)
    same = plain.replace(optimizer=optax.sgd(1.0))
    one, two = (trained(m, fed, "linear", rounds=3, **EXACT) for m in (plain, same))
    np.testing.assert_allclose(flat(one.hub), flat(two.hub), rtol=1e-10)
    np.testing.assert_allclose(kept(one), kept(two), rtol=1e-8, atol=1e-12)
    adam = trained(plain.replace(optimizer="adam", local_steps=1), fed, "linear", rounds=1, **EXACT)
    w = flat(adam.template)
    np.testing.assert_allclose(kept(adam), b * (w - best), rtol=1e-10)


def test_plain_sgd_by_name_is_no_optimiser_at_all() -> None:
    """So it is the same program, to the bit."""
    assert coterie.FedAvg(optimizer="sgd") == coterie.FedAvg()
    assert coterie.FedAvg(optimizer={"name": "sgd"}).to_config() == coterie.FedAvg().to_config()
    assert "optimizer" not in coterie.FedAvg().to_config()
    assert coterie.FedAvg(optimizer={"name": "sgd", "clip": 1.0}).optimizer is not None


def test_a_transformation_of_optax_is_taken_as_it_is() -> None:
    fed = linear()
    named = coterie.FedU(lr=LR, local_steps=2, optimizer="adam", optimizer_state="kept")
    given = named.replace(optimizer=optax.adam(1.0))
    one, two = (trained(m, fed, "linear", rounds=2, **EXACT) for m in (named, given))
    np.testing.assert_allclose(kept(one), kept(two), rtol=1e-10, atol=1e-14)


def test_schedules_of_lr_scale_the_steps_of_an_optimiser() -> None:
    """lr·R Adam steps of the first round: about lr per coordinate and step."""
    fed = linear()
    lr = {"kind": "inverse-time", "scale": 0.01, "shift": 1.0}
    method = coterie.get_method("local", {"lr": lr, "local_steps": 1, "optimizer": "adam"})
    run = trained(method, fed, "linear", rounds=2, **EXACT)
    b, best = facts(fed)
    x = flat(run.template) * np.ones((N, 1))
    for step in (0.01, 0.005):  # a fresh Adam's first direction is the sign of the gradient
        x = x - step * np.sign(b * (x - best))
    np.testing.assert_allclose(memories(run).x.leaves[0].reshape(N, -1), x, rtol=1e-5)


def test_local_beside_a_method_gets_its_optimiser() -> None:
    for method in (
        coterie.FedU(optimizer={"name": "adam", "b1": 0.5}, optimizer_state="kept"),
        coterie.Ditto(optimizer="yogi"),
        coterie.APFL(optimizer="adam"),
        coterie.FedRep(optimizer="adam", optimizer_state="kept"),
        coterie.PerFedAvg(optimizer=optax.adam(1.0)),
    ):
        beside = coterie.equal_compute(method)
        assert beside.optimizer == method.optimizer
        assert beside.optimizer_state == method.optimizer_state
    assert coterie.equal_compute(coterie.PFedMe()).optimizer is None


def test_kept_states_survive_a_checkpoint_and_any_store(ragged: Federation, tmp_path: Path) -> None:
    """FedAvg's clients keep nothing else."""
    method = coterie.FedAvg(
        lr=LR, local_steps=2, optimizer="adam", optimizer_state="kept", server_optimizer="fedadam"
    )

    def simulator(part: str, store: str) -> coterie.Simulator:
        (tmp_path / part).mkdir()
        options = coterie.Training(rounds=4, batch_size=4, cohort=2, store=store)
        return coterie.Simulator(method, ragged, "mlr", options, folder=tmp_path / part)

    whole, first, second = (simulator(p, "file") for p in ("whole", "first", "second"))
    while whole.t < 4:
        whole.advance(4)
    while first.t < 2:
        first.advance(2 - first.t)
    (tmp_path / "run").mkdir()
    Checkpoints(tmp_path / "run", "same", {}).write(first)
    assert Checkpoints(tmp_path / "run", "same", {}).restore(second, pytest.fail)
    while second.t < 4:
        second.advance(4)
    assert second.store.packed(np.arange(5)).tobytes() == whole.store.packed(np.arange(5)).tobytes()
    assert flat(second.hub_state).tobytes() == flat(whole.hub_state).tobytes()
    counts = np.asarray(memories(whole)[0].count)
    taken = np.array([sum(k in whole.cohort(t) for t in range(4)) for k in range(5)])
    np.testing.assert_array_equal(counts, 2 * taken)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"optimizer": "adma"}, "'adma'.*did you mean 'adam'"),
        ({"optimizer": {"b1": 0.9}}, "must have a name"),
        ({"optimizer": {"name": "adam", "beta1": 0.9}}, "'beta1'.*did you mean 'b1'"),
        ({"optimizer": {"name": "adam", "b1": 1.0}}, "b1 is 1, but must be below 1"),
        ({"optimizer": {"name": "adam", "eps": 0}}, "eps is 0"),
        ({"optimizer": 3}, "optimizer is 3, but must be a name"),
        ({"optimizer": ["adam"]}, "must be a name"),
        ({"optimizer": "fedadam"}, "'fedadam'"),
        ({"optimizer_state": "kept"}, "plain SGD"),
        ({"beta": 0.5, "server_optimizer": "fedadam"}, "beta is 0.5"),
        ({"server_lr": 0.5}, "server_lr is 0.5"),
        ({"server_optimizer": "fedadm"}, "did you mean 'fedadam'"),
    ],
)
def test_wrong_optimisers_are_refused_in_a_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        coterie.get_method("fedavg", given)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_transformation_that_goes_up_or_does_not_fit_is_refused_before_the_first_round() -> None:
    fed = linear()
    options = coterie.Training(rounds=1, **EXACT)
    for rule, words in (
        (optax.scale_by_adam(), "goes up the gradient"),
        (optax.masked(optax.sgd(1.0), {"other": True}), "fails on this model's parameters"),
    ):
        for method in (
            coterie.FedAvg(optimizer=rule),
            coterie.FedU(optimizer=rule),
            coterie.FedAvg(server_optimizer=rule),
        ):
            with pytest.raises(InvalidInput, match=words):
                coterie.Simulator(method, fed, "linear", options)


def test_what_was_made_in_python_cannot_be_written_into_a_run() -> None:
    contender = Contender(coterie.FedAvg(optimizer=optax.adam(1.0)))
    experiment = Experiment.from_config({"method": "fedavg", "data": {"name": "digits"}})
    with pytest.raises(InvalidInput, match=r"fedavg\.optimizer was made in Python"):
        experiment.with_(contenders=(contender,)).to_toml()


def test_read_gives_back_what_it_made() -> None:
    rule = read_optimizer("x", {"name": "momentum", "nesterov": True})
    assert read_optimizer("x", rule) is rule
    written = coterie.Local(optimizer=rule).to_config()["optimizer"]
    assert written["name"] == "momentum"
    assert coterie.Local(optimizer=written) == coterie.Local(optimizer=rule)

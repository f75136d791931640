"""kNN-Per without votes is FedAvg, kNN-Local is Local; their mixtures and the weights that clients
choose are worked out again in NumPy; hidden groups gain by it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput
from coterie.data.federation import pack
from coterie.engine.adapt import adapt
from coterie.models.build import build_model
from coterie.models.layers import dense_first
from coterie.models.memorised import memorised
from coterie.runs.compare import compare, with_locals
from coterie.runs.contender import Contender
from tests.support.star_runs import flat, trained

K, SCALE = 3, 0.7


def softmax(z: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def hidden(tree: Any, x: NDArray[Any]) -> NDArray[Any]:
    """The features of a perceptron with one hidden layer."""
    layer = tree["layer0"]
    return np.maximum(x @ np.asarray(layer["w"]).T + np.asarray(layer["b"]), 0)


def votes(features: NDArray[Any], kept: NDArray[Any], y: NDArray[Any], classes: int) -> Any:
    """By sorting distances, row by row."""
    out = np.zeros((len(features), classes))
    for row, phi in enumerate(features):
        apart = ((kept - phi) ** 2).sum(1) / (kept.shape[1] * SCALE)
        for i in np.argsort(apart)[:K]:
            out[row, y[i]] += np.exp(-apart[i])
    return out / out.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "model"),
    [(coterie.KNNPer, "mlp"), (coterie.KNNPer, "mlr"), (coterie.KNNLocal, "mlp")],
)
def test_predictions_and_choices_worked_out_again(
    kind: Any, model: str, ragged: Federation
) -> None:
    spec = coterie.get_model(model, {"hidden": "6"} if model == "mlp" else {})
    method = kind(nearest=K, scale=SCALE, validation=0.4, lr=0.3, local_steps=5)
    run = trained(method, ragged, spec, rounds=3)
    base, chosen = build_model(spec, ragged.shape), set()
    phi = lambda tree, x: hidden(tree, x) if model == "mlp" else x
    for k in range(ragged.clients):
        with run.precision():
            stored = run.models(k)["personal"].tree
            x, y = ragged.train.client(k)
            test = ragged.test.x[:20]
            found = np.asarray(run.model.outputs(stored, test))
            own = lambda x: softmax(np.asarray(base.outputs(stored.parameters, x)))  # noqa: B023
            probabilities, before = own(test), own(x)
        tree = stored.parameters
        out = max(1, int(0.4 * len(x)))
        assert out < len(x), "somebody must vote"
        near = votes(phi(tree, x[:out]), phi(tree, x[out:]), y[out:], 3)
        grid = np.linspace(0, 1, 11)
        true = lambda p: p[np.arange(out), y[:out]]  # noqa: B023
        losses = [
            -np.log(np.maximum((1 - a) * true(before) + a * true(near), 1e-300)).sum() for a in grid
        ]
        assert float(stored.share) == pytest.approx(grid[np.argmin(losses)])
        chosen.add(float(stored.share))
        share = float(stored.share)
        expected = (1 - share) * probabilities
        expected += share * votes(phi(tree, test), phi(tree, x), y, 3)
        np.testing.assert_allclose(np.exp(found), expected, rtol=1e-8, atol=1e-12)
        assert int(stored.size) == len(x), "all rows vote once λ is chosen"
    assert len(chosen) > 1, "clients must choose differently for this to mean something"


def test_without_votes_it_is_fedavg(ragged: Federation) -> None:
    options: dict[str, Any] = {
        "lr": 0.1,
        "local_steps": 3,
        "optimizer": "momentum",
        "optimizer_state": "kept",
        "server_optimizer": "fedadam",
    }
    one = coterie.simulate(
        coterie.KNNPer(**options, votes=0.0), ragged, "mlr", rounds=4, eval_every=4, cohort=3
    )
    plain = coterie.simulate(
        coterie.FedAvg(**options, weighting="samples"),
        ragged,
        "mlr",
        rounds=4,
        eval_every=4,
        cohort=3,
    )
    np.testing.assert_array_equal(flat(one.simulator.hub), flat(plain.simulator.hub))
    np.testing.assert_allclose(
        one.snapshots[-1].scores["test"].loss, plain.snapshots[-1].scores["test"].loss, rtol=1e-5
    )
    assert one.ledger.totals() == plain.ledger.totals()


def test_without_votes_the_memory_of_local_is_local(ragged: Federation) -> None:
    options: dict[str, Any] = {"lr": 0.1, "local_steps": 3, "trains": "all"}
    training: dict[str, Any] = {"rounds": 3, "eval_every": 3, "cohort": 3}
    one = coterie.simulate(coterie.KNNLocal(**options, votes=0.0), ragged, "mlr", **training)
    plain = coterie.simulate(coterie.Local(**options), ragged, "mlr", **training)
    for k in range(ragged.clients):
        mine = one.simulator.models(k)["personal"].tree.parameters
        expected = plain.simulator.models(k)["personal"].tree
        for name in expected:
            np.testing.assert_array_equal(mine[name], expected[name])
    assert one.ledger.totals() == plain.ledger.totals()


def by_hand(x: NDArray[Any], y: NDArray[Any], steps: int, lr: float) -> tuple[Any, Any]:
    """Logistic regression from zero, all rows at every step."""
    w, b, truth = np.zeros((2, x.shape[1])), np.zeros(2), np.eye(2)[y]
    for _ in range(steps):
        residual = (softmax(x @ w.T + b) - truth) / len(x)
        w, b = w - lr * residual.T @ x, b - lr * residual.sum(0)
    return w, b


def test_the_model_of_local_with_memory_is_trained_on_the_rest_by_hand() -> None:
    """The first 3 of 10 rows choose λ, the model sees the other 7."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((10, 3)), rng.integers(0, 2, 10)
    fed = Federation("one", pack([(x, y)]), pack([(x, y)]), pack([(x, y)]), classes=2)
    method = coterie.KNNLocal(validation=0.3, local_steps=4, lr=0.5)
    start = coterie.Model(
        lambda key: {"w": jax.numpy.zeros((2, 3)), "b": jax.numpy.zeros(2)},
        dense_first,
        class_major=True,
    )
    run = trained(method, fed, start, rounds=2, sampling="full")
    tree = run.models(0)["personal"].tree.parameters
    w, b = by_hand(x[3:], y[3:], 8, 0.5)
    np.testing.assert_allclose(tree["w"], w, rtol=1e-9)
    np.testing.assert_allclose(tree["b"], b, rtol=1e-9)


def test_rows_that_choose_are_not_trained_on() -> None:
    """Other labels in the held-out rows change no bit of the model."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 10, 3))
    y = rng.integers(0, 2, (2, 10))
    runs = []
    for flip in (False, True):
        labels = y.copy()
        labels[:, :3] ^= flip
        parts = [(x[k], labels[k]) for k in range(2)]
        fed = Federation("flip", pack(parts), pack(parts), pack(parts), classes=2)
        runs.append(trained(coterie.KNNPer(validation=0.3, local_steps=4), fed, rounds=3))
    np.testing.assert_array_equal(flat(runs[0].hub), flat(runs[1].hub))
    all_rows = trained(coterie.KNNPer(votes=0.5, local_steps=4), fed, rounds=3)
    assert np.abs(flat(all_rows.hub) - flat(runs[1].hub)).max() > 1e-6


def opposed(clients: int = 4) -> Federation:
    """Clients with even numbers label by the sign of x_0, the others by its opposite."""
    rng = np.random.default_rng(3)

    def some(count: int) -> Any:
        parts = []
        for k in range(clients):
            x = rng.standard_normal((count, 2))
            parts.append((x, ((x[:, 0] > 0) ^ bool(k % 2)).astype(np.int64)))
        return pack(parts)

    return Federation("opposed", some(40), some(0), some(60), classes=2)


def test_clients_that_one_model_cannot_serve_listen_to_their_rows() -> None:
    fed = opposed()
    training: dict[str, Any] = {"rounds": 10, "eval_every": 10, "batch_size": 10}
    run = coterie.simulate(coterie.KNNPer(scale=0.05), fed, "mlr", **training)
    assert run.client_scores().min() > 0.85
    one = coterie.simulate(coterie.FedAvg(), fed, "mlr", **training)
    assert one.client_scores().mean() < 0.65
    found = adapt(run.simulator, opposed().subset(np.array([1])), rounds=1).models["personal"]
    assert float(found.tree.share[0]) > 0.7, "a newcomer remembers its own rows"


def test_a_gain_that_comes_from_remembering_is_not_one_of_federating() -> None:
    """Labels that no linear model can tell: rows that vote can, alone as well as together."""
    rng = np.random.default_rng(7)

    def some(count: int) -> Any:
        parts = []
        for _ in range(4):
            x = rng.standard_normal((count, 2))
            parts.append((x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)))
        return pack(parts)

    fed = Federation("xor", some(60), some(40), some(60), classes=2)
    method = coterie.KNNPer(scale=0.05, local_steps=4)
    table = compare([method], fed, "mlr", rounds=5, eval_every=5)
    assert [e.label for e in table.entries] == ["Local", "kNN-Local", "kNN-Per"]
    plain, memory, mine = (e.outcomes[0] for e in table.entries)
    alone = method.alone(coterie.equal_compute(method))
    assert memory.method.to_config() == alone.to_config()
    better = lambda a, b: np.mean(a.last()) - np.mean(b.last())
    assert better(memory, plain) > 0.2
    assert table.entries[2].local is table.entries[1].outcomes
    row = next(row for row in table.rows() if row.label == "kNN-Per")
    assert row.gain is not None
    assert row.gain.mean == pytest.approx(better(mine, memory))
    answer = table.answer()
    assert answer.local == "kNN-Local"
    assert answer.word != "federate"


def test_others_are_still_measured_against_their_own_local(ragged: Federation) -> None:
    labelled, partner = with_locals(
        [Contender(coterie.FedU()), Contender(coterie.KNNPer()), Contender(coterie.KNNLocal())]
    )
    assert [label for label, _ in labelled] == ["kNN-Local", "Local", "FedU", "kNN-Per"]
    assert partner == [0, 1, 1, 1]


def test_numbers_are_mixed_with_the_neighbours_mean() -> None:
    """Two rows remembered, at x = 0 and x = 1; asked at x = 0 with all weight on votes."""
    x = np.array([[0.0], [1.0]])
    parts = [(x, np.array([2.0, 6.0]))]
    fed = Federation("two", pack(parts), pack(parts), pack(parts), task="regression")
    run = trained(coterie.KNNPer(votes=1.0, nearest=5, scale=2.0), fed, "linear", rounds=1)
    with run.precision():
        stored = run.models(0)["personal"].tree
        found = float(run.model.outputs(stored, np.zeros((1, 1)))[0, 0])
    far = np.exp(-0.5)
    assert found == pytest.approx((2 + 6 * far) / (1 + far), rel=1e-12)


def test_memory_is_cut_and_exports_are_refused(ragged: Federation) -> None:
    from coterie.runs.experiment import Experiment
    from coterie.runs.export import exported_of

    run = trained(coterie.KNNPer(capacity=4), ragged, rounds=1)
    stored = run.models(0)["personal"].tree
    assert stored.features.shape[0] == 4
    assert float(stored.size) <= 4
    x, _ = ragged.train.client(0)
    out = max(1, int(0.2 * len(x)))
    np.testing.assert_array_equal(stored.features, x[out : out + 4], "held-out rows come last")
    experiment = Experiment.from_config({"data": {"name": "digits"}, "method": "knn-per"})
    with pytest.raises(InvalidInput, match="its models hold their clients' training rows and are"):
        exported_of(run, experiment, run.models(0)["personal"], "0", "personal")


def test_models_without_a_dense_last_layer_are_refused(ragged: Federation) -> None:
    strange = coterie.Model(
        lambda key: {"a": jax.numpy.zeros((4, 3))}, lambda p, x: x @ p["a"], name="strange"
    )
    for model in (strange, coterie.get_model("mlp", {"norm": "batch"})):
        with pytest.raises(InvalidInput, match="has no dense last layer to look behind; knn-per"):
            coterie.simulate(coterie.KNNPer(), ragged, model, rounds=1)


def test_the_features_of_convolutional_models_are_what_their_last_layer_sees() -> None:
    """The last layer applied to them gives the model's outputs."""
    shape = coterie.load("digits", clients=3).shape._replace(inputs=(28, 28), largest=5)
    base = build_model("cnn", shape)
    model = memorised(base, shape, 2, 5)
    tree = base.init(jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((3, 28, 28)).astype(np.float32)
    apply: Any = model.apply
    features = np.asarray(apply.features(tree, x))
    assert features.shape == (3, 512)
    last = features @ np.asarray(tree["out"]["w"]).T + np.asarray(tree["out"]["b"])
    np.testing.assert_allclose(last, base.outputs(tree, x), rtol=1e-4, atol=1e-5)


def test_estimators_remember() -> None:
    fed = opposed()
    x, y = (np.concatenate([fed.train.client(k)[i] for k in range(4)]) for i in (0, 1))
    groups = np.repeat(np.arange(4), 40)
    made = coterie.PersonalClassifier(
        method="knn-per", method_options={"scale": 0.05}, rounds=5
    ).fit(x, y, groups=groups)
    assert np.mean(made.predict(x, groups=groups) == y) > 0.9

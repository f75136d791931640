"""A PyTorch module as a model, computed by PyTorch: equal to the native one, one by one and mapped,
and refused in one sentence where it cannot be. `test_torch_jax.py` compares JAX with this.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.data.federation import pack
from coterie.engine.reference import simulate_slowly
from coterie.engine.simulate import Simulator
from coterie.methods.split import layers
from coterie.methods.star import StarMethod
from tests.support.torch_nets import RUN, Net, alone, local, native, same

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch import nn  # noqa: E402

callback = partial(coterie.torch_model, backend="callback")


@pytest.fixture(scope="module")
def small() -> coterie.Federation:
    """3 clients of different sizes; alike test sets, so that the loop compiles one program for
    them.
    """
    rng = np.random.default_rng(8)
    draw = lambda n: (
        rng.standard_normal((n, 4)),
        rng.integers(0, 3, n).astype(np.int32),
    )
    train, validation, test = (
        pack([draw(n) for n in sizes]) for sizes in ([5, 9, 6], [0, 0, 0], [4, 4, 4])
    )
    return coterie.Federation("small", train, validation, test, classes=3)


METHODS = [
    coterie.FedAvg(local_steps=3),
    coterie.FedU(local_steps=3, eta=0.02),
    coterie.PFedMe(local_rounds=2, inner_steps=3),
    coterie.LpProj2(local_rounds=2, inner_steps=2, dsub=6),
]
CASES = [(m, "float64") for m in METHODS] + [(METHODS[0], "float32")]
CASES += [pytest.param(m, "float32", marks=pytest.mark.slow) for m in METHODS[1:]]


@pytest.mark.parametrize(
    ("method", "precision"), CASES, ids=lambda value: getattr(value, "name", value)
)
def test_equals_the_native_perceptron(
    method: coterie.Method, precision: str, small: coterie.Federation
) -> None:
    net = Net().double() if precision == "float64" else Net()
    rtol, atol = (1e-5, 1e-6) if precision == "float32" else (1e-10, 1e-12)
    expected = coterie.simulate(method, small, native(net, l2=0.01), precision=precision, **RUN)
    model = callback(net, l2=0.01)
    same(coterie.simulate(method, small, model, precision=precision, **RUN), expected, rtol, atol)
    if precision == "float64":
        same(
            simulate_slowly(method, small, model, precision=precision, **RUN), expected, rtol, atol
        )


OTHERS = [name for name in coterie.METHODS if name not in {"mocha", *(m.name for m in METHODS)}]
FEW = ("afl", "fedrep")  # one that asks for losses too, and one that splits the model


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in OTHERS]
)
def test_every_other_method_takes_the_native_gradients(
    name: str, small: coterie.Federation
) -> None:
    """`local` of one client, alone, as a deployment calls it."""
    models = {"torch": callback(Net()), "native": native(Net())}
    found = {}
    for kind, model in models.items():
        asked = coterie.get_method(
            name, {"dsub": 6} if "dsub" in coterie.METHODS[name].public() else {}
        )
        sim = Simulator(asked, small, model, coterie.Training(rounds=1, sampling="full"))
        method = (
            sim.method.replace(local_steps=2)
            if "local_steps" in sim.method.public()
            else sim.method
        )
        star = isinstance(method, StarMethod)
        received = method.broadcast(sim.hub, 1) if star else sim.hub
        state = method.client_init(sim.template)
        step = jax.jit(lambda m, r, w, o: m.local(r, w, o))(
            method, received, state, sim.now().objective(1)
        )
        found[kind] = jax.tree.leaves((step.message, step.state))
    for a, b in zip(found["torch"], found["native"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_hessian_vector_products_are_those_of_the_native_model(small: coterie.Federation) -> None:
    method = coterie.PerFedAvg(local_steps=2, order="hessian-vector", adapt_lr=0.1)
    # A smooth function, so that curvature is not only in the last layer.
    model = callback(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double())
    apply = lambda p, x: (
        jnp.tanh(x @ p["0"]["weight"].T + p["0"]["bias"]) @ p["2"]["weight"].T + p["2"]["bias"]
    )
    ours, theirs = (
        alone(method, small, m, "float64") for m in (model, coterie.Model(model.init, apply))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    plain = alone(method.replace(order="first-order"), small, model, "float64")
    assert not np.allclose(ours, plain, rtol=1e-4)


def test_the_last_layer_is_the_last_of_the_module_and_layers_can_be_named(
    ragged: coterie.Federation,
) -> None:
    model = callback(Net())
    template = model.vector(jax.random.key(0))
    assert layers(template) == ["hidden", "final"]
    assert coterie.FedPer().shared_names(template) == {"hidden"}
    assert coterie.LGFedAvg().shared_names(template) == {"final"}
    result = coterie.simulate(coterie.FedPer(local_steps=2, shared="final"), ragged, model, **RUN)
    heads = [result.personal(k).tree["final"]["weight"] for k in (0, 1)]
    np.testing.assert_array_equal(heads[0], heads[1])
    assert not np.allclose(
        result.personal(0).tree["hidden"]["weight"], result.personal(1).tree["hidden"]["weight"]
    )
    module = model.module(result.personal(4))  # … and a personal model becomes a module again
    assert isinstance(module, Net)
    assert not module.training
    x, y = ragged.test.client(4)
    right = module(torch.tensor(x, dtype=torch.float32)).argmax(1).numpy() == y
    assert right.mean() == pytest.approx(result.client_scores()[4], abs=1e-6)
    assert list(module.state_dict()) == [
        "hidden.weight",
        "hidden.bias",
        "final.weight",
        "final.bias",
    ]


def test_the_start_is_the_modules_and_later_changes_of_it_do_not_matter(
    ragged: coterie.Federation,
) -> None:
    net = Net()
    model = callback(net)
    before = net.hidden.weight.detach().numpy().copy()
    net.hidden.weight.data.zero_()
    for seed in (0, 1):
        np.testing.assert_array_equal(
            model.vector(jax.random.key(seed)).tree["hidden"]["weight"], before
        )
    assert model.parameters() == 4 * 5 + 5 + 5 * 3 + 3


def smoothed(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.1)


def test_a_loss_of_ones_own_and_short_batches(ragged: coterie.Federation) -> None:
    """Against a plain PyTorch loop over the same batches, of which the last of an epoch is short;
    the loss gives a mean, or one number per sample.
    """
    method = coterie.FedAvg(local_epochs=2, lr=0.1)
    models = [
        callback(Net(), loss) for loss in (nn.CrossEntropyLoss(label_smoothing=0.1), smoothed)
    ]
    net = Net()
    for i, model in enumerate(models):
        sim = Simulator(method, ragged, model, coterie.Training(batch_size=4))
        objective = sim.now().objective(1)
        drawn = jax.jit(lambda o: jax.vmap(o.batch)(jnp.arange(8)))(objective)
        assert np.asarray(drawn.weight).sum(1).tolist() == [4, 4, 4, 2] * 2
        for x, y, weight in zip(*(np.asarray(a) for a in drawn[:3]), strict=True) if not i else ():
            net.zero_grad()
            smoothed(
                net(torch.tensor(x[weight > 0])), torch.tensor(y[weight > 0]).long()
            ).mean().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
        found = sim.template.like(local(method, sim.template, objective)).tree
        np.testing.assert_allclose(
            found["hidden"]["weight"], net.hidden.weight.detach().numpy(), rtol=1e-4, atol=1e-6
        )
    outputs, y = (
        jnp.asarray(np.random.default_rng(0).standard_normal((5, 3)), jnp.float32),
        jnp.arange(5) % 3,
    )
    np.testing.assert_allclose(*(m.loss.samples(outputs, y) for m in models), rtol=1e-5)


def test_class_weights_of_a_loss_take_the_precision_of_the_run(ragged: coterie.Federation) -> None:
    model = callback(Net(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])))
    assert np.isfinite(alone(coterie.FedAvg(local_steps=1), ragged, model, "float64")).all()


def test_regression_with_one_target() -> None:
    """Targets of shape (batch,) meet outputs of shape (batch, 1): left to itself, MSELoss would
    take the differences of all pairs.
    """
    fed = coterie.load("linear", clients=3, dimension=4, samples=12)
    net = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(net.weight)
    line = coterie.models.get_model("linear").build((4,), 1)
    expected = alone(coterie.FedAvg(local_steps=2, lr=0.04), fed, line, "float64")
    for lr, loss in ((0.04, None), (0.02, nn.MSELoss())):  # which has no half in it
        found = alone(coterie.FedAvg(local_steps=2, lr=lr), fed, callback(net, loss), "float64")
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_dropout_is_in_gradients_only_and_belongs_to_the_seed(small: coterie.Federation) -> None:
    model, method = (
        callback(Net(middle=nn.Dropout(0.5)), nn.CrossEntropyLoss(label_smoothing=0.1)),
        coterie.FedAvg(local_steps=3),
    )
    before = torch.random.get_rng_state()
    runs = [coterie.simulate(method, small, model, seed=seed, **RUN) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), before)
    flat = [r.simulator.all_models().flat() for r in runs]
    np.testing.assert_array_equal(flat[0], flat[1])
    assert not np.allclose(flat[0], flat[2])
    slow = simulate_slowly(method, small, model, **RUN)
    np.testing.assert_allclose(slow.simulator.all_models().flat(), flat[0], rtol=1e-5, atol=1e-6)
    # Scores are of the module in eval mode, and by its own loss.
    module, (x, y) = model.module(model.init(None)), small.test.client(1)
    loss = smoothed(module(torch.tensor(x).float()), torch.tensor(y).long()).mean().item()
    assert runs[0].snapshots[0].scores["test"].loss[0, 1] == pytest.approx(loss, rel=1e-5)


def test_every_step_drops_something_else(ragged: coterie.Federation) -> None:
    sim = Simulator(
        "fedavg",
        ragged,
        callback(Net(middle=nn.Dropout(0.5))),
        coterie.Training(sampling="full"),
    )
    objective = sim.now().objective(3)
    first, again, second = (
        objective.gradient(sim.template, objective.batch(i)).flat() for i in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, second)


def test_frozen_parameters_and_constant_buffers_stay(ragged: coterie.Federation) -> None:
    class Scaled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((4,), 0.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * self.scale)

    net = Scaled()
    net.hidden.requires_grad_(False)
    model = callback(net)
    assert model.parameters() == 5 * 3 + 3
    template = model.vector(None)
    assert set(template.tree) == {"final"}
    trained = template.like(alone(coterie.FedAvg(local_steps=2), ragged, model, "float64"))
    module = model.module(trained)
    assert torch.equal(module.hidden.weight, net.hidden.weight)
    assert torch.equal(module.scale, net.scale)
    assert not torch.equal(module.final.weight, net.final.weight)


def test_tied_weights_are_one_parameter(ragged: coterie.Federation) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4, bias=False)
            self.two = nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight
            self.final = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.final(torch.tanh(self.two(torch.tanh(self.one(x)))))

    net = Tied()
    model = callback(net)
    assert model.parameters() == 16 + 15
    module = model.module(
        model.vector(None).like(alone(coterie.FedAvg(local_steps=2), ragged, model))
    )
    assert torch.equal(module.one.weight, module.two.weight)
    assert not torch.equal(module.one.weight, net.one.weight)


def test_many_parameters_pass_without_hanging(small: coterie.Federation) -> None:
    net = nn.Sequential(
        nn.Linear(4, 1000), nn.ReLU(), nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 3)
    )
    assert np.isfinite(alone(coterie.FedAvg(local_steps=5), small, callback(net))).all()


def test_apply_can_be_differentiated(ragged: coterie.Federation) -> None:
    model, other = callback(Net()), native(Net())
    x = jnp.asarray(ragged.train.x[:6], jnp.float32)
    p = model.init(jax.random.key(0))
    slope = lambda m: jax.grad(lambda p: jnp.sum(jnp.sin(m.outputs(p, x))))(p)
    theirs, ours = slope(other), slope(model)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, theirs)


class Counting(nn.Module):
    """Changes a buffer that is no statistic."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return x


def refuse(word: str, module: Any, fed: coterie.Federation, loss: Any = None) -> None:
    with pytest.raises(coterie.InvalidInput, match=word) as error:
        coterie.simulate(
            coterie.FedAvg(local_steps=1), fed, coterie.torch_model(module, loss), rounds=1
        )
    assert "\n" not in str(error.value)


def test_what_is_refused_and_how(ragged: coterie.Federation) -> None:
    refuse("must be a torch.nn.Module", lambda x: x, ragged)
    refuse("must be a function loss", Net(), ragged, "mse")
    refuse("no parameters to train", nn.Identity(), ragged)
    refuse(r"outputs of shape \(2, 4\) .* must give \(2, 3\)", Net(outputs=4), ragged)
    refuse(r"fails on inputs of shape \(2, 4\)", Net(inputs=5), ragged)
    refuse("buffer 'middle.calls'", Net(middle=Counting()), ragged)
    refuse(
        "other samples are beside it",
        Net(middle=nn.BatchNorm1d(5, track_running_stats=False)),
        ragged,
    )
    refuse("a mean over samples, not a sum", Net(), ragged, nn.CrossEntropyLoss(reduction="sum"))
    refuse("the loss fails", Net(), ragged, nn.BCEWithLogitsLoss())
    refuse("one number per sample", Net(), ragged, lambda outputs, y: outputs)
    refuse("has no shape yet", nn.LazyLinear(3), ragged)
    whole = Net()
    whole.register_parameter(
        "table", nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
    )
    refuse("'table' is of type int64", whole, ragged)
    prototypes = nn.CrossEntropyLoss()
    prototypes.register_parameter("scale", nn.Parameter(torch.ones(1)))
    refuse("parameters of its own", Net(), ragged, prototypes)
    with pytest.raises(coterie.InvalidInput, match="mocha needs a linear model"):
        coterie.simulate("mocha", ragged, coterie.torch_model(nn.Linear(4, 3)), rounds=1)


def test_without_pytorch_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for call in (
        lambda: coterie.torch_model(None),
        lambda: coterie.from_datasets([]),
        lambda: coterie.LoaderClient(None, None),
    ):  # type: ignore[arg-type]
        with pytest.raises(coterie.InvalidInput, match=r"pip install 'coterie\[torch\]'"):
            call()


def test_importing_coterie_does_not_import_pytorch() -> None:
    subprocess.run(
        [sys.executable, "-c", "import coterie, sys; assert 'torch' not in sys.modules"], check=True
    )

"""PyTorch modules computed by JAX: equal to those computed by PyTorch (in double, to the last
digits), and left to PyTorch, in one sentence, where they cannot be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.core.errors import Notice
from coterie.engine.reference import simulate_slowly
from coterie.engine.simulate import Simulator
from tests.support.torch_nets import RUN, Net, alone, same

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Words(nn.Module):
    """A table of words, a recurrent layer, the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4, padding_idx=1)
        self.reader = nn.GRU(4, 3, batch_first=True)
        self.final = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.final(self.reader(self.table(x.long()))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(1, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.final = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.final(self.layer(self.wide(x[..., None])).mean(1))


class Odd(nn.Module):
    """Tied weights, a frozen layer, constants of several kinds, changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.frozen = nn.Linear(6, 3).requires_grad_(False)
        self.last = nn.Linear(6, 3)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 6))
        self.plain = torch.linspace(1.0, 2.0, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.two(torch.tanh(self.one(x * self.scale))) / self.plain
        x[:, 0] += torch.tensor([2.0], dtype=x.dtype)
        x.clamp_(-1.0, 1.0)
        rest = torch.stack([x.std(1), x.amax(1), x[:, ::2].prod(1)], 1)
        return self.last(x) + F.normalize(self.frozen(x)) + torch.where(rest > 0, rest, 0.1 * rest)


class EachAlone(nn.Module):
    """Goes through the samples, so that it is another list of operators for every batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tanh(self.layer(sample)) for sample in x])


def image(*layers: nn.Module, side: int = 6) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, side, side)), *layers)


def row(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 12)), *layers)


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "perceptron": (lambda: Net(6), 6),
    "batch": (lambda: Net(6, middle=nn.BatchNorm1d(5)), 6),
    "cnn": (
        lambda: image(
            nn.Conv2d(1, 2, 3, padding=1, bias=False),
            nn.BatchNorm2d(2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(18, 3),
        ),
        36,
    ),
    "cnn-plain": (
        lambda: image(
            nn.Conv2d(1, 2, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2, 3, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        ),
        36,
    ),
    "cnn-other": (
        lambda: image(
            nn.Conv2d(1, 4, (3, 1), stride=(1, 2), padding=(1, 0)),
            nn.GroupNorm(2, 4),
            nn.GELU(),
            nn.MaxPool2d(3, 1, 1),
            nn.Conv2d(4, 4, 3, groups=2, padding="same", dilation=2),
            nn.Softplus(),
            nn.AvgPool2d(2, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
        ),
        36,
    ),
    "row": (
        lambda: row(
            nn.Conv1d(1, 4, 3, stride=2),
            nn.SiLU(),
            nn.MaxPool1d(2),
            nn.Flatten(),
            nn.LayerNorm(8),
            nn.ELU(),
            nn.Linear(8, 4),
            nn.Hardtanh(),
            nn.Linear(4, 3),
            nn.LeakyReLU(),
            nn.LogSoftmax(1),
        ),
        12,
    ),
    "words": (Words, 4),
    "attention": (Attention, 4),
    "odd": (Odd, 6),
    "each alone": (EachAlone, 6),
}
QUICK = ("perceptron", "cnn", "cnn-plain", "odd")


def both(make: Callable[[], nn.Module], loss: Any = None) -> list[Any]:
    """The same module, computed by JAX and by PyTorch."""
    torch.manual_seed(0)
    net = make().double()
    return [coterie.torch_model(net, loss, backend=b) for b in ("jax", "callback")]


def batch(features: int, words: bool = False) -> tuple[Any, ...]:
    """Five samples, of which two are padding: one like another, one of zeros."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 9, (5, features)) if words else rng.standard_normal((5, features))
    x = x.astype(np.float64)
    x[3], x[4] = x[0], 0
    y = np.array([2, 0, 1, 2, 0], np.int32)
    return x, y, np.array([1.0, 1.0, 1.0, 0.0, 0.0]), np.uint32(7)


def close(one: Any, two: Any) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETS]
)
def test_outputs_losses_and_gradients_are_pytorchs(name: str) -> None:
    make, features = NETS[name]
    x, y, weight, seed = batch(features, name == "words")
    with jax.enable_x64(True):
        models = both(make)
        assert models[0].why_callback((features,), 3) == ""
        found = []
        for model in models:
            p = model.init(None)
            assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(p))
            loss = lambda p, x, m=model: m.loss.training(p, x, y, weight, seed)
            one = [loss(p, x), jax.jit(jax.value_and_grad(loss))(p, x), model.apply(p, x)]
            many = jax.tree.map(lambda v: jnp.stack([v, 1.1 * v]), p)
            one += [jax.jit(jax.vmap(jax.grad(loss)))(many, np.stack([x, x]))]
            if model.statistics is not None:
                one += [model.statistics.train(p, x, weight)]
            found.append(one)
        close(*found)


LOSSES = {
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1),
    "of each": nn.CrossEntropyLoss(reduction="none"),
    "margin": nn.MultiMarginLoss(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_ones_own(name: str) -> None:
    x, y, weight, seed = batch(6)
    with jax.enable_x64(True):
        models = both(lambda: Net(6), LOSSES[name])
        assert models[0].why_callback((6,), 3) == ""
        p, found = models[0].init(None), []
        for m in models:
            slope = jax.value_and_grad(lambda p, m=m: m.loss.training(p, x, y, weight, seed))
            found.append((slope(p), m.loss.samples(m.apply(p, x), y)))
        close(*found)


@pytest.mark.parametrize("loss", [None, nn.MSELoss(), nn.HuberLoss(), nn.L1Loss()])
def test_losses_of_a_regression_with_one_target(loss: Any) -> None:
    x, _, weight, seed = batch(6)
    y = np.linspace(-1, 1, 5)
    with jax.enable_x64(True):
        models = both(lambda: Net(6, outputs=1), loss)
        assert models[0].why_callback((6,), 1, "regression") == ""
        p = models[0].init(None)
        close(*(jax.grad(lambda p, m=m: m.loss.training(p, x, y, weight, seed))(p) for m in models))


METHODS = [
    coterie.FedAvg(local_epochs=1),
    pytest.param(coterie.PFedMe(local_rounds=2, inner_steps=2), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_run_equals_that_by_callbacks(method: coterie.Method, ragged: coterie.Federation) -> None:
    """With short batches, and with statistics of each client."""
    models = both(lambda: Net(middle=nn.BatchNorm1d(5)), nn.CrossEntropyLoss(label_smoothing=0.1))
    options = {"rounds": 2, "eval_every": 2, "batch_size": 4, "precision": "float64"}
    same(*(coterie.simulate(method, ragged, m, **options) for m in models), 1e-9, 1e-11)


def test_hessian_vector_products_are_pytorchs(ragged: coterie.Federation) -> None:
    method = coterie.PerFedAvg(local_steps=2, order="hessian-vector", adapt_lr=0.1)
    models = both(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    close(*(alone(method, ragged, m, "float64") for m in models))


def test_dropout_is_jaxs_only_where_that_is_asked_for(ragged: coterie.Federation) -> None:
    net = Net(middle=nn.Dropout(0.5))
    assert "aten.native_dropout" in coterie.torch_model(net).why_callback((4,), 3)
    model, method = coterie.torch_model(net, backend="jax"), coterie.FedAvg(local_steps=2)
    before = torch.random.get_rng_state()
    runs = [coterie.simulate(method, ragged, model, seed=seed, **RUN) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), before)
    flat = [r.simulator.all_models().flat() for r in runs]
    np.testing.assert_array_equal(flat[0], flat[1])
    assert not np.allclose(flat[0], flat[2])
    slow = simulate_slowly(method, ragged, model, **RUN)
    np.testing.assert_allclose(slow.simulator.all_models().flat(), flat[0], rtol=1e-5, atol=1e-6)
    x = jnp.asarray(ragged.test.x[:4], jnp.float32)
    p = model.init(None)
    with torch.no_grad():
        np.testing.assert_allclose(
            model.apply(p, x), model.module(p)(torch.tensor(np.asarray(x))), rtol=1e-5, atol=1e-6
        )


def test_every_step_drops_half_and_something_else() -> None:
    """Of 400 numbers about 200 are kept, each doubled; the gradient by a bias counts them."""
    net = nn.Sequential(nn.Linear(1, 400), nn.Dropout(0.5), nn.Linear(400, 1))
    model = coterie.torch_model(net, backend="jax")
    x, y, weight = np.ones((2, 1), np.float32), np.zeros(2, np.float32), np.array([1.0, 0.0])
    slope = jax.jit(jax.grad(lambda p, s: model.loss.training(p, x, y, weight, s)))
    p = model.init(None)
    kept = [np.asarray(slope(p, np.uint32(s))["0"]["bias"]) != 0 for s in (1, 1, 2)]
    assert (kept[0] == kept[1]).all()
    assert (kept[0] != kept[2]).any()
    assert all(140 < k.sum() < 260 for k in kept)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Sorts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x, 1).values


class Rounds(nn.Module):
    """Straight through: rounded, with the slope of what is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (torch.round(x) - x).detach()


class Reverses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, along: torch.Tensor) -> torch.Tensor:
        return -along


class OwnSlope(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Reverses.apply(x)


class Centres(nn.Module):
    """Looks at the whole batch in training mode, and is no layer of batch normalisation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0) if self.training else x


def squared_mean(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, y).square()


@pytest.mark.parametrize(
    ("middle", "loss", "word"),
    [
        (Sorts(), None, "aten.sort"),
        (Branches(), None, "a value decides"),
        (Rounds(), None, "detach"),
        (OwnSlope(), None, "gradients"),
        (Centres(), None, "loss of a batch"),
        (None, squared_mean, "loss of a batch"),
        (None, nn.CrossEntropyLoss(ignore_index=1), "ignores class 1"),
    ],
    ids=["sort", "branch", "detach", "slope", "batch", "loss", "ignored"],
)
def test_what_jax_cannot_do_is_left_to_pytorch(middle: Any, loss: Any, word: str) -> None:
    net = Net(middle=middle)
    model = coterie.torch_model(net, loss)
    with pytest.warns(Notice, match=word) as said:
        model.check((4,), 3, "classification")
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    x, y, weight, seed = batch(4)
    x, weight = x.astype(np.float32), weight.astype(np.float32)
    p, pytorch = model.init(None), coterie.torch_model(net, loss, backend="callback")
    for a, b in zip(
        *(
            jax.tree.leaves(jax.grad(lambda p, m=m: m.loss.training(p, x, y, weight, seed))(p))
            for m in (model, pytorch)
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(coterie.InvalidInput, match=word) as error:
        coterie.torch_model(net, loss, backend="jax").check((4,), 3, "classification")
    assert "backend='callback'" in str(error.value)


def test_the_callback_says_nothing_and_an_unknown_backend_is_refused() -> None:
    model = coterie.torch_model(Net(middle=Sorts()), backend="callback")
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        model.check((4,), 3, "classification")
    with pytest.raises(coterie.InvalidInput, match="'auto', 'jax' or 'callback'"):
        coterie.torch_model(Net(), backend="xla")  # type: ignore[arg-type]


def test_it_may_be_chosen_in_the_middle_of_a_trace(ragged: coterie.Federation) -> None:
    """Without a check before, as a function of one's own may use a model."""
    model = coterie.torch_model(Net())
    x = jnp.asarray(ragged.train.x[:3], jnp.float32)
    found = jax.jit(lambda p: jax.vmap(lambda row: model.apply(p, row[None])[0])(x))(
        model.init(None)
    )
    pytorch = coterie.torch_model(Net(), backend="callback")
    np.testing.assert_allclose(found, pytorch.apply(model.init(None), x), rtol=1e-5, atol=1e-6)


def test_a_program_has_no_callback(ragged: coterie.Federation) -> None:
    for backend, count in (("auto", False), ("callback", True)):
        model = coterie.torch_model(Net(), backend=backend)  # type: ignore[arg-type]
        sim = Simulator("fedavg", ragged, model, coterie.Training(sampling="full"))
        objective = sim.now().objective(1)
        step = jax.make_jaxpr(lambda w, o: o.gradient(w, o.batch(0)))(sim.template, objective)
        assert ("callback" in str(step)) is count

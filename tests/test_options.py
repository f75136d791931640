"""Bad options are refused with one sentence that names the field, the value and what is allowed."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie import METHODS, MODELS, CoterieError, InvalidInput, Training
from coterie.channel import CHANNELS, get_channel
from coterie.core.options import declared
from coterie.data.base import SOURCES

GROUPS = {**METHODS, **MODELS, **SOURCES, "training": Training}


def build(name: str, **given_: Any) -> Any:
    cls = GROUPS[name]
    needed = {
        k: "x" if str in d.kinds else 1
        for k, d in cls.public().items()
        if d.default is dataclasses.MISSING
    }
    return cls.from_config({**needed, **given_})


def sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def numbers(name: str) -> list[str]:
    return [key for key, d in GROUPS[name].public().items() if int in d.kinds or float in d.kinds]


@pytest.mark.parametrize("name", [name for name in sorted(GROUPS) if numbers(name)])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "3x"], ids=repr)
def test_no_number_may_be_negative_nan_infinite_or_of_another_type(name: str, value: Any) -> None:
    for key in numbers(name):
        d = GROUPS[name].public()[key]
        if isinstance(value, str) and str in d.kinds and int not in d.kinds:
            continue
        with pytest.raises(InvalidInput) as caught:
            build(name, **{key: value})
        text = sentence(caught.value)
        assert key in text
        assert repr(value) in text or repr(float(value)) in text


@pytest.mark.parametrize("value", [[0.1, 0.2], (1, 2), b"1", 1j], ids=repr)
def test_lists_and_other_types_are_refused_on_construction(value: Any) -> None:
    """A list is what a TOML file gives for `lr = [0.1, 0.2]`."""
    for name in GROUPS:
        for key in numbers(name):
            with pytest.raises(InvalidInput, match=key):
                build(name, **{key: value})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((m, "local_steps") for m in ("local", "fedavg", "fedu", "dfedu", "graph-proj")),
        ("local", "local_epochs"),
        ("pfedme", "local_rounds"),
        ("pfedme", "inner_steps"),
        *((m, "lr") for m in METHODS if "lr" in METHODS[m].public()),
        ("pfedme", "personal_lr"),
        ("lp-proj", "dsub"),
        ("lp-proj", "blocks"),
        ("fedavg", "beta"),
        ("fedu", "mix_lr"),
        *(
            ("training", k)
            for k in (
                "rounds",
                "cohort",
                "fraction",
                "batch_size",
                "eval_every",
                "clients_at_once",
                "devices",
                "eval_at_once",
            )
        ),
        *((s, "clients") for s in ("synthetic", "digits", "linear")),
    ],
)
def test_zero_steps_rates_and_clients_are_refused(name: str, key: str) -> None:
    with pytest.raises(InvalidInput, match=f"{key} is 0"):
        build(name, **{key: 0})


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("pfedme", "lam", 0), ("fedu", "eta", 0), ("lp-proj", "p", 1), ("mlr", "l2", 0)],
)
def test_bounds_that_are_allowed(name: str, key: str, value: int) -> None:
    assert getattr(build(name, **{key: value}), key) == value


@pytest.mark.parametrize("p", [0, 0.5, 0.999])
def test_p_below_one_is_refused(p: float) -> None:
    for name in ("lp-proj", "graph-proj"):
        with pytest.raises(InvalidInput, match="p is"):
            build(name, p=p)
    for name, other in (("lp-proj-1", 2), ("lp-proj-2", 1)):
        with pytest.raises(InvalidInput, match="p is"):
            build(name, p=other)


def test_whole_numbers_become_floats_and_whole_floats_become_ints() -> None:
    method = coterie.FedU(lr=1, local_steps=3.0)
    assert (method.lr, type(method.lr)) == (1.0, float)
    assert (method.local_steps, type(method.local_steps)) == (3, int)
    with pytest.raises(
        InvalidInput, match=r"fedu.local_steps is 2.5, but must be a whole number ≥ 1"
    ):
        coterie.FedU(local_steps=2.5)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32])
def test_numpy_numbers_are_checked_like_pythons(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="local_steps is"):
        coterie.Local(local_steps=kind(-3))
    with pytest.raises(InvalidInput, match="lr is"):
        coterie.Local(lr=kind(-1))


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("pfedme", "lambda_", "lam"),
        ("pfedme", "personal_rl", "personal_lr"),
        ("fedu", "local_step", "local_steps"),
        ("training", "batchsize", "batch_size"),
        ("synthetic", "client", "clients"),
        ("mlp", "hiden", "hidden"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(
    name: str, wrong: str, right: str
) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean '{right}'") as caught:
        build(name, **{wrong: 1})
    assert repr(wrong) in sentence(caught.value)


@pytest.mark.parametrize(
    ("get", "wrong", "right"),
    [
        (coterie.get_method, "pfedmee", "pfedme"),
        (coterie.get_method, "FedU", "fedu"),
        (coterie.get_model, "mlrr", "mlr"),
        (coterie.load, "digit", "digits"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(get: Any, wrong: str, right: str) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean '{right}'"):
        get(wrong)


def test_an_unknown_choice_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"fedu.neighbours.*did you mean 'sampled'"):
        coterie.FedU(neighbours="sample")
    with pytest.raises(InvalidInput, match=r"training.precision.*float32"):
        Training(precision="float")
    with pytest.raises(InvalidInput, match="projection"):
        coterie.LpProj(projection="diagonal")


def test_replace_checks_names_and_values() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'eta'"):
        coterie.FedU().replace(etta=0.1)
    with pytest.raises(InvalidInput, match="eta is -1"):
        coterie.FedU().replace(eta=-1)


def test_cohorts_are_checked_against_the_clients(ragged: coterie.Federation) -> None:
    with pytest.raises(InvalidInput, match=r"training.cohort is 6, but must be at most 5"):
        coterie.simulate("fedavg", ragged, cohort=6, rounds=1)
    with pytest.raises(InvalidInput, match="both given"):
        coterie.simulate("fedavg", ragged, cohort=2, fraction=0.5, rounds=1)
    with pytest.raises(InvalidInput, match="no hub that could sample"):
        coterie.simulate("dfedu", ragged, cohort=2, rounds=1)
    assert Training(fraction=0.5).cohort_size(ragged) == 2
    assert Training(fraction=0.01).cohort_size(ragged) == 1
    assert Training().cohort_size(ragged) == 5


def test_errors_are_coterie_errors_with_exit_code_2() -> None:
    with pytest.raises(CoterieError) as caught:
        coterie.Local(lr=-1)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_config_round_trip(name: str) -> None:
    made = build(name)
    again = GROUPS[name].from_config(made.to_config())
    assert again == made


@pytest.mark.parametrize("name", sorted(METHODS))
def test_floats_are_leaves_and_everything_else_is_structure(name: str) -> None:
    made = METHODS[name]()
    traced = [
        k for k, d in declared(METHODS[name]).items() if d.traced and getattr(made, k) is not None
    ]
    assert jax.tree.leaves(made) == [getattr(made, k) for k in traced]
    again = jax.tree.map(lambda leaf: leaf * 1.0, made)
    assert again == made


@settings(max_examples=50, deadline=None)
@given(
    value=st.one_of(
        st.integers(),
        st.floats(),
        st.booleans(),
        st.text(max_size=4),
        st.none(),
        st.lists(st.integers(), max_size=2),
    )
)
def test_any_value_is_either_taken_in_range_or_refused(value: Any) -> None:
    try:
        method = coterie.PFedMe(lam=value, local_rounds=value)
    except InvalidInput:
        return
    assert isinstance(method.lam, float)
    assert method.lam >= 0
    assert np.isfinite(method.lam)
    assert isinstance(method.local_rounds, int)
    assert method.local_rounds >= 1


def test_no_two_classes_are_one_to_a_compiled_program() -> None:
    """JAX looks programs up by structure.

    Attacks (and lp-proj and lp-proj-2) have fields alike, and must differ all the same.
    """
    from coterie.adversary.base import ATTACKS
    from coterie.channel import CHANNELS
    from coterie.methods import METHODS

    for registry in (ATTACKS, METHODS, CHANNELS):
        structures = {name: jax.tree.structure(cls()) for name, cls in registry.items()}
        assert [
            (a, b)
            for a in structures
            for b in structures
            if a < b and structures[a] == structures[b]
        ] == []
        for name, cls in registry.items():
            assert jax.tree.structure(cls()) == structures[name], "the same class is the same"
            assert jax.tree.map(lambda leaf: leaf, cls()) == cls()
    kinds = [
        coterie.InverseSqrt(1.0),
        coterie.SquareRoot(1.0),
        coterie.InverseTime(1.0),
        coterie.Linear(1.0),
        coterie.Power(1.0, -2.0),
    ]
    assert len({str(jax.tree.structure(kind)) for kind in kinds}) == 5
    assert sum(jax.tree.structure(a) == jax.tree.structure(b) for a in kinds for b in kinds) == 5


def test_summaries_are_whole_sentences() -> None:
    """A docstring's first sentence may take two lines; lists show all of it."""
    for name, cls in {**METHODS, **MODELS, **SOURCES, **CHANNELS}.items():
        assert "\n" not in cls.summary
        assert cls.summary.endswith("."), name
    assert METHODS["scaffold"].summary.endswith("everybody's mean gradient.")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: coterie.get_method("fedavg", {"liars": 2}),
            "fedavg.liars is called fedavg.byzantine now.",
        ),
        (
            lambda: coterie.get_method("pfedme", {"inner_start": "memory"}),
            "pfedme.inner_start is 'memory', which is called 'last' now.",
        ),
        (
            lambda: get_channel("delta", {"pick": "turns"}),
            "delta.pick is 'turns', which is called 'cyclic' now.",
        ),
    ],
)
def test_an_old_name_is_answered_by_the_new_one(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert str(caught.value) == sentence

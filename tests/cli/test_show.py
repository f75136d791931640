"""`coterie show` finds everything, also what shares its name; help shows its square brackets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie import METHODS, MODELS
from coterie.adversary import ATTACKS
from coterie.channel import CHANNELS
from coterie.data import SOURCES

Cli = Callable[..., tuple[int, str, str]]
KINDS = {
    "method": METHODS,
    "channel": CHANNELS,
    "attack": ATTACKS,
    "data": SOURCES,
    "model": MODELS,
}


def first_words(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())[:30]


@pytest.mark.parametrize("kind", KINDS)
def test_every_one_can_be_shown_by_its_kind(cli: Cli, kind: str) -> None:
    for name, cls in KINDS[kind].items():
        code, out, err = cli("show", kind, name)
        assert code == 0, err
        assert first_words(cls) in " ".join(out.split())


def test_all_that_share_a_name_are_shown(cli: Cli) -> None:
    assert "linear" in MODELS
    assert "linear" in SOURCES
    code, out, _ = cli("show", "linear")
    assert code == 0
    words = " ".join(out.split())
    assert first_words(MODELS["linear"]) in words
    assert first_words(SOURCES["linear"]) in words
    assert "coterie show model linear" in words
    assert "coterie show data linear" in words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("modl", "linear"), "the kind 'modl' is unknown; did you mean 'model'?"),
        (("model", "linea"), "the model 'linea' is unknown; did you mean 'linear'?"),
        (("model", "linear", "more"), "show takes a name, or a kind and a name"),
    ],
)
def test_a_wrong_word_is_told(cli: Cli, words: tuple[str, ...], sentence: str) -> None:
    code, _, err = cli("show", *words)
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    ("command", "shown"),
    [("compare", ["[[methods]]"]), ("run", ["[data]", "[method]"]), ("attack", ["[[methods]]"])],
)
def test_help_keeps_square_brackets(cli: Cli, command: str, shown: list[str]) -> None:
    code, out, _ = cli(command, "--help")
    assert code == 0
    for text in shown:
        assert text in out


def test_every_argument_is_explained(cli: Cli) -> None:
    for command, words in (
        ("export", "The folder of a run."),
        ("show", "one name, first its kind"),
    ):
        code, out, _ = cli(command, "--help")
        assert code == 0
        assert words in " ".join(out.split())

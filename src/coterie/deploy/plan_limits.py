"""What no plan may hold: numbers and lists with which a participant would work for hours, or run
out of memory, before it could say that they make no sense.
"""

from __future__ import annotations

from typing import Any

from coterie.core.errors import InvalidInput

LARGEST = 1 << 53
ROUNDS = 10**9
LAYERS = 200
PARAMETERS = 10**10


def check_numbers(config: dict[str, Any]) -> None:
    """Before anything is made of a plan's tables."""
    pending = [(key, value) for key, value in config.items() if key != "graph"]
    while pending:
        where, value = pending.pop()
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise InvalidInput(
                f"{where} is a number of {len(str(abs(value)))} digits, but must be below 2^53."
            )
        if isinstance(value, dict):
            pending += [(f"{where}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            if where.startswith("model.") and len(value) > LAYERS:
                raise InvalidInput(
                    f"{where} is a list of {len(value)}, but must have at most {LAYERS} entries."
                )
            pending += [(where, inner) for inner in value if not isinstance(inner, str)]


def check_sizes(rounds: int, parameters: int) -> None:
    """Of a plan whose model is known."""
    if rounds > ROUNDS:
        raise InvalidInput(f"training.rounds is {rounds}, but must be at most {ROUNDS}.")
    if parameters > PARAMETERS:
        raise InvalidInput(
            f"the model has {parameters} parameters, but a plan's may have at most {PARAMETERS}."
        )

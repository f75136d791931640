"""Python modules that a plan names. Others have written the plan, and whoever may name a module
runs code here: so they are imported only where the site itself allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.core.errors import InvalidInput, shown


def module_names(where: str, given: Any) -> list[str]:
    """What a site allows, checked; `where` is the key or the option that says so."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f"{where} is {shown(given)}, but must be a list of names.")
    for name in given:
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput(
                f"{where} holds {shown(name)}, but must be names of Python modules: wards.nets."
            )
    return given


def check_modules(
    plan: Mapping[str, Any], allowed: Sequence[str], remedy: Callable[[str], str]
) -> None:
    """Before anything is made of a plan's tables. `remedy` says how a module is allowed; a module
    that is allowed allows those in it.
    """
    model = plan.get("model")
    for key, value in (model if isinstance(model, dict) else {}).items():
        module, colon, _ = str(value).partition(":")
        if colon and not any(f"{module}.".startswith(f"{name}.") for name in allowed):
            raise InvalidInput(f"the plan's model.{key} is {shown(value)}, but {remedy(module)}")

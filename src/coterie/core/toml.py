"""TOML that others have written, read with a sentence about what is wrong."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from coterie.core.errors import InvalidInput

DEEPEST = 100
"""The most names that a key, or the header of a table, may have: a.b.c has three."""
_QUOTED = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\\?\Z)|'
    r"'''.*?(?:'''|\Z)|"
    r'"(?:[^"\\\n]|\\[^\n])*"?|'
    r"'[^'\n]*'?|"
    r"#[^\n]*",
    re.DOTALL,
)
"""Strings and comments, in which dots mean nothing; also those that never end."""
_BETWEEN = re.compile(r"[=\[\]{},\n]")


def tables(data: bytes, whose: str) -> dict[str, Any]:
    """The tables of a TOML file; `whose` names it in the errors, e.g. "the plan 'a.toml'"."""
    try:
        text = data.decode()
        if any(part.count(".") >= DEEPEST for part in _BETWEEN.split(_QUOTED.sub("", text))):
            raise RecursionError  # tomllib would work on such a key for seconds
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{whose} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{whose} is not valid TOML: {error}.") from None
    except RecursionError:
        raise InvalidInput(f"{whose} holds tables or lists in each other too deeply.") from None
    except InvalidInput:
        raise
    except ValueError:  # what TOML calls an integer, and Python refuses to make one of
        raise InvalidInput(f"{whose} holds a number with too many digits.") from None

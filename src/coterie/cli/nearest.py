"""What a wrong word on the command line is told: one sentence that names the nearest right one."""

from __future__ import annotations

import re
from typing import Any

from coterie.core.errors import nearest


def sentence(error: Any) -> str:
    """The sentence for an error of the library that reads the command line."""
    told = str(error.format_message()).strip()
    context: Any = getattr(error, "ctx", None)
    command = getattr(context, "command", None)
    wrong = getattr(error, "option_name", None)
    if wrong is not None and command is not None:
        known = [name for p in command.params for name in (*p.opts, *p.secondary_opts)]
        long = [name for name in known if name.startswith("--")]
        hint = nearest(str(wrong), long) or f"; `{context.command_path} --help` lists them."
        return f"the option {wrong!r} of `{context.command_path}` is unknown{hint}"
    missing = re.match(r"No such command '(.*?)'", told)
    if missing and command is not None:
        known = [name for name, one in command.commands.items() if not one.hidden]
        hint = nearest(missing[1], known) or f"; `{context.command_path} --help` lists them."
        return f"the command {missing[1]!r} of `{context.command_path}` is unknown{hint}"
    return told

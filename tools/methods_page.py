"""Write docs/methods.md and docs/channels.md from the docstrings and options in the code; a test
checks that the pages are up to date.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from coterie.channel import CHANNELS
from coterie.methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"
METHODS_HEAD = """# Methods

Made by `python tools/methods_page.py` from the code; `coterie show NAME` prints the same. Floats
are traced (another value compiles nothing new). Where it says so, a schedule over the rounds may be
given. "Tuned over" is where `coterie tune` looks ([tuning.md](tuning.md)).

How each method was checked (closed form, solver, or rounds repeated in NumPy) is in
[design.md](design.md#what-is-proved-and-how).

The option `merging` is in the methods whose hub takes a mean: `fedavg`, `fedprox`, `ditto`, `afl`,
`scaffold`, `per-fedavg`, `pfedme`, `apfl`, `l2gd`, `lg-fedavg`, `fedper`, `fedrep`, `lp-proj`,
`lp-proj-1`, `lp-proj-2`. The hub of `rsa` moves by signs and the hub of `mocha` adds dual updates,
so they have no such option. The graph methods `fedu`, `dfedu` and `graph-proj` have `mixing`.
"""
CHANNELS_HEAD = """# Channels

What messages go through on their way: every number as it is (`plain`), or something smaller. The
bytes of a run are those of the encoded messages, exactly.

```toml
method = "fedu"
[data]
name = "digits"
[channel]
# public copies at both ends, the largest differences, 8-bit values, gap-coded coordinates
name = "delta"
share = 0.02
```

In `[[methods]]` tables: `channel = "qsgd"` or `channel = { name = "delta", share = 0.003 }`. A
method in a comparison may have its own.

## Which method takes which channel

| method | channels |
|---|---|
| star methods (a hub merges) | all |
| `mocha` | `plain` only: a lossy channel would break the bond between its two kinds of variables |
| `fedu`, `dfedu`, `graph-proj` | all that bring a message nearer (below) |
| `local`, `global` | send no messages: a channel changes nothing |

Graph methods go over public copies, and so does whatever a hub compresses (`down`). There a channel
must bring what arrives nearer to the message than the copy was, else errors add up. Refused there,
with a sentence: `qsgd` unless levels² is above bucket (its default is not), `random-k` with
`scaled`, `sketch` with `exact = false`. In deployments, `down` is refused for methods whose hub
sends each client something different (`mocha`).

## What becomes of the part that is cut off

`memory` says it:

- "none": it is lost.
- "errors": the sender adds it to its next message (error feedback).
- "copies": both ends keep the same public copy of what was sent so far. The sender sends the
  difference to it, and the receiver works with the copy (the delta channel). With nothing cut off
  that is the method itself, bit for bit. Stars keep copies of updates (message − model received),
  graphs of the messages themselves; through a hub the copies follow the mixing, which both ends
  know. Graphs always go over copies. A client that missed broadcasts pays for them when it takes
  part again, or for a whole copy if that is shorter.

Every message over copies carries two bytes with a version. A receiver that sees a gap or a
repetition says so and leaves its copy alone; the sender's `resend` gives it a whole copy
(`coterie.channel.link`).

## Payload and wire

Bytes here, in the ledger and in reports are payload: the encoded messages. On a real network each
message also pays for an envelope, TLS, TCP and the carrier, so small messages save less than their
payload says. `python bench/wire.py` measures it; its result is in
[bench/wire.result.md](../bench/wire.result.md).

Made by `python tools/methods_page.py` from the code; `coterie show NAME` prints the same.
"""


def options(cls: Any) -> str:
    tuned = any(d.search is not None for d in cls.public().values())
    head = ["option", "symbol", "default", "allowed", *["tuned over"] * tuned, "meaning"]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for d in cls.public().values():
        allowed = d.allowed + (", or a schedule" if d.schedulable else "")
        default = "–" if d.default is None else d.default
        space = f" {'' if d.search is None else d.search} |" if tuned else ""
        rows.append(f"| `{d.name}` | {d.symbol} | {default} | {allowed} |{space} {d.help} |")
    return "\n".join(rows) + "\n"


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    methods, channels = [METHODS_HEAD], [CHANNELS_HEAD]
    for name, cls in METHODS.items():
        methods.append(
            f"## {cls.title}"
            f" (`{name}`)\n\n{cls.paper}\n\n```text\n{inspect.cleandoc(cls.__doc__ or '')}\n```\n"
        )
        methods.append(options(cls))
    for name, channel in CHANNELS.items():
        channels.append(
            f"## `{name}`\n\n{inspect.cleandoc(channel.__doc__ or '')}\n\n{options(channel)}"
        )
    return {"methods.md": "\n".join(methods), "channels.md": "\n".join(channels)}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(name, "written")

"""Write docs/methods/NAME.md for every method, docs/optimisers.md and docs/channels.md from the
docstrings and options in the code; a test checks that the pages are up to date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from coterie.channel import CHANNELS
from coterie.methods import METHODS
from coterie.methods.optimizers import OPTIMIZERS
from coterie.methods.server import SERVER_OPTIMIZERS

sys.path.insert(0, str(Path(__file__).parent))
from equations import markdown

DOCS = Path(__file__).parents[1] / "docs"
OPTIMISERS_HEAD = """# Optimisers

Local steps go along the gradient, and a hub takes the mean of what clients send. Both can be
changed, for clients and hub apart.

## On clients

```toml
[method]
name = "fedu"
lr = 0.01
optimizer = "adam"                        # or { name = "adam", b1 = 0.8, clip = 1.0 }
optimizer_state = "kept"                  # default: "fresh" in every round

[data]
name = "digits"
```

On the command line: `--set method.optimizer=adam`, then `--set method.optimizer.b1=0.8`. In Python
also any `optax.GradientTransformation`:

```python
import optax

import coterie

fed = coterie.load("digits", clients=4)
rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1.0))
method = coterie.FedAvg(lr=0.01, local_steps=2, optimizer=rule)
coterie.simulate(method, fed, rounds=2, eval_every=2)
```

A step is x ← x − lr·u, where u is what the optimiser makes of the gradient. `lr` stays the method's
step size, and its schedules (by round) keep working. A transformation of optax has a step size of
its own, by which `lr` is multiplied: give it 1, as above. Runs that share the object share their
compiled programs. Such a method cannot be written into a run's folder, so `coterie run` and
`compare` take names and tables.

- **What goes into the optimiser** is the whole gradient of the method's local problem: with
  FedProx's and Ditto's pull, SCAFFOLD's correction, RSA's sign, Per-FedAvg's meta-gradient.
- **Its state** begins anew in every round, or is kept by each client (`optimizer_state = "kept"`)
  as a part of what it keeps for the method: in stores, checkpoints and deployments. It is never
  sent. A client that was not sampled keeps what it had. Where a method trains two models (Ditto,
  APFL, FedRep), each has a state of its own.
- **Local** in a comparison gets the same optimiser, with its state fresh or kept alike.
- **Graph methods** pull by μ̃η with μ̃ = μR in any case. For plain steps μR is how long a client
  went along its gradient. Adam moves a coordinate by about μ in a step whatever the gradient's
  size, so the balance between data and neighbours then depends on the scale of the gradients: tune
  `eta`, or set `mix_lr`. The same holds for L2GD's pull.
- **SCAFFOLD**: how far a client went says nothing of gradients when an optimiser went the way. So
  `control = "difference"` then takes the mean of the gradients, which for plain steps is the same.
- **Conditions** on step sizes that hold for plain steps (FedProx, Ditto) are not checked with an
  optimiser.
- `pfedme` and `lp-proj` have gradient steps of their own for the inner problem (`personal_lr`),
  solved on one mini-batch, and `mocha` goes up the dual: they have no `optimizer`. Steps that adapt
  a model when it is asked for (Per-FedAvg's α) and APFL's steps of α are gradient steps, too.

## At the hub

```toml
[method]
name = "fedavg"
server_optimizer = "fedadam"              # or { name = "fedadam", tau = 0.01 }
server_lr = 0.03

[data]
name = "digits"
```

The hub takes w − mean of the messages as a gradient: w ← w − server_lr·u(w − mean). That is FedOpt
(Reddi et al. 2021). With `server_optimizer = "sgd"` and `server_lr` = β it is what the hub does by
default with `beta`, which has no effect otherwise. All methods whose hub takes a mean have it, and
with `merging` the mean is a robust one. The optimiser's state is a part of what the hub keeps, in
checkpoints and on a deployed hub. The rules `fedadam`, `fedyogi`, `fedadagrad` and `fedavgm` are
for hubs; all others are for clients and hubs.

## The rules

Made by `python tools/methods_page.py` from the code; `coterie show optimizer adam` prints the same.
All floats are traced: another value compiles nothing new.
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
method in a comparison may have its own. In Python: `coterie.simulate(…, channel="delta")`. Try
`delta` first: both ends keep a public copy of what was sent so far, and a message carries only the
largest differences to it. What is not sent now is sent later.

## Which method takes which channel

| method | channels |
|---|---|
| star methods (a hub merges) | all |
| `mocha` | `plain` only: a lossy channel would break the bond between its two kinds of variables |
| `ifca` | `plain` only: a message says which cluster it is for, and is near a model known by that |
| `fedu`, `dfedu`, `dada`, `graph-proj` | all that bring a message nearer (below) |
| `local`, `global` | send no messages: a channel changes nothing |

Graph methods go over public copies, and so does whatever a hub compresses (`down`). There a channel
must bring what arrives nearer to the message than the copy was, else errors add up. Refused there,
with a sentence: `qsgd` unless levels² is above bucket (its default is not), `random-k` with
`scaled`, `sketch` with `exact = false`. In deployments, `down` is refused for methods whose hub
sends each client something different (`mocha`, `cfl`, `fedamp`, `pfedgraph`, `fedfomo`, `apple`,
`sfl`).

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
    head = ["option", "meaning", "default", "allowed", *["tuned over"] * tuned]
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for d in cls.public().values():
        allowed = d.allowed + (", or a schedule" if d.schedulable else "")
        default = "–" if d.default is None else d.default
        space = f" {'' if d.search is None else d.search} |" if tuned else ""
        name = f"`{d.name}` ({d.symbol})" if d.symbol else f"`{d.name}`"
        rows.append(f"| {name} | {d.help} | {default} | {allowed} |{space}")
    return "\n".join(rows) + "\n"


def method_page(name: str, cls: Any) -> str:
    told = markdown(inspect.cleandoc(cls.__doc__ or ""), list(cls.public()))
    paper = cls.paper if cls.paper.startswith("(") else f"*{cls.paper}*"
    return f"# {cls.title}\n\n`{name}` · {paper}\n\n{told}\n## Options\n\n{options(cls)}"


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    channels = [CHANNELS_HEAD]
    methods = {f"methods/{name}.md": method_page(name, cls) for name, cls in METHODS.items()}
    for name, channel in CHANNELS.items():
        channels.append(
            f"## `{name}`\n\n{inspect.cleandoc(channel.__doc__ or '')}\n\n{options(channel)}"
        )
    optimisers = [OPTIMISERS_HEAD]
    for name, rule in {**OPTIMIZERS, **SERVER_OPTIMIZERS}.items():
        optimisers.append(
            f"### `{name}`\n\n{inspect.cleandoc(rule.__doc__ or '')}\n\n{options(rule)}"
        )
    return {
        **methods,
        "optimisers.md": "\n".join(optimisers),
        "channels.md": "\n".join(channels),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")
        print(name, "written")

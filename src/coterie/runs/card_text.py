"""A model card for people: the facts of card.json in plain words."""

from __future__ import annotations

from typing import Any

from coterie.report.units import bytes_text

POOR = 30
"""Test rows below which a score says little."""


def card_text(facts: dict[str, Any]) -> str:
    """Markdown."""
    parts = [_head(facts), _use(facts), _score(facts), _data(facts), _training(facts), _cost(facts)]
    return "\n".join(part for part in parts if part)


def _who(facts: dict[str, Any]) -> str:
    if facts["client"] is not None:
        return f"the model of {facts['client']}"
    return "what a newcomer needs" if facts["view"] is None else "the model that all clients share"


def _head(facts: dict[str, Any]) -> str:
    data, how = facts["data"], facts["training"]
    target = f" {data['target']!r}" if data.get("target") else ""
    what = f"It predicts{target} ({data['task']})." if facts["view"] is not None else ""
    wrote = facts["versions"].get("coterie", "?")
    return (
        f"# Model card: {_who(facts)}\n\n{what} It was trained with {how['title']} in a federation"
        f" of {data['clients']} clients, and written on {facts['date']} (coterie {wrote}).\n"
    ).replace("\n\n It", "\n\nIt")


def _use(facts: dict[str, Any]) -> str:
    data = facts["data"]
    lines = ["## What it is for, and what not\n"]
    if facts["client"] is not None:
        lines.append(
            f"- It is meant for new rows of {facts['client']}, measured in the same way as its"
            " training rows. For rows of another site use that site's model."
        )
    elif facts["view"] is not None:
        lines.append(
            "- It is meant for rows of sites that took part, or are like them. No score of its own"
            " is given here: how well it does differs from site to site."
        )
    else:
        lines.append(
            "- It is meant for a site that was not in training: `coterie adapt` makes a model of it"
            " and of the site's own rows."
        )
    if inside := facts["members' models inside"]:
        lines.append(
            f"- It holds the states of all {inside} members: newcomers of"
            " this method are tied to their models. Give it to nobody who may not see these."
        )
    lines.append(
        "- No rows are in this folder. That does not make it anonymous: models can tell something"
        " about the rows that they were trained on."
    )
    lines.append(
        "- It was not checked for groups within a site, for times after the training data, or for"
        " changes in how values are measured. Check it on your own new rows before it decides"
        " anything."
    )
    if data["task"] == "classification" and "training rows of each class" in data:
        none = [c for c, n in data["training rows of each class"].items() if not n]
        if none:
            lines.append(
                f"- {facts['client']} had no training rows of {', '.join(none)}: what the model"
                " says about these comes from other sites alone."
            )
    return "\n".join(lines) + "\n"


def _score(facts: dict[str, Any]) -> str:
    score, gain = facts["score"], facts["gain over Local"]
    lines = ["## How well it does\n"]
    if score is None:
        lines.append("There are no test rows to say it by.")
        return "\n".join(lines) + "\n"
    per_cent = score["percent"]
    number = lambda v: f"{100 * v:.2f}%" if per_cent else f"{v:.4g}"
    interval = (
        f" (95% interval {number(score['low'])} to {number(score['high'])})"
        if score["low"] is not None
        else ""
    )
    lines.append(
        f"On {score['rows']} test rows of {facts['client']}, which it was not trained on:"
        f" {score['title']} {number(score['value'])}{interval}."
    )
    if score["rows"] < POOR:
        lines.append(f"{score['rows']} rows are few: the score may be far from what you will see.")
    if gain is not None:
        lines.append(_gain(gain, score["title"], per_cent))
    return "\n".join(lines) + "\n"


def _gain(gain: dict[str, Any], title: str, per_cent: bool) -> str:
    more = "better" if gain["mean"] > 0 else "worse" if gain["mean"] < 0 else "different"
    size = f"{100 * abs(gain['mean']):.2f} points" if per_cent else f"{abs(gain['mean']):.4g}"
    sure = ""
    if gain["p"] is not None:
        clear = "clear" if gain["p"] <= 0.05 else "not clear"
        sure = (
            f" ({gain['rows better']} rows better, {gain['rows worse']} worse; p ="
            f" {gain['p']:.2g}, {clear})"
        )
    return (
        f"Against training alone with equal gradient steps its {title} is {size} {more} on the same"
        f" rows{sure}."
    )


def _data(facts: dict[str, Any]) -> str:
    data = facts["data"]
    lines = ["## Data\n", "| | training | validation | test |", "|---|---|---|---|"]
    row = lambda who, sizes: "| " + " | ".join([who, *(f"{sizes[s]:,}" for s in sizes)]) + " |"
    if "rows" in data:
        lines.append(row(facts["client"], data["rows"]))
    lines.append(row(f"all {data['clients']} clients", data["rows of all"]))
    lines.append("")
    shape = " × ".join(map(str, data["inputs"]))
    lines.append(f"Source: {data['name']}; inputs after preprocessing: {shape}.")
    if data.get("labels"):
        lines.append(f"Classes: {', '.join(map(str, data['labels']))}.")
    if "training rows of each class" in data:
        counts = data["training rows of each class"].items()
        lines.append(f"Training rows of each class: {', '.join(f'{c} {n}' for c, n in counts)}.")
    return "\n".join(lines) + "\n"


def _training(facts: dict[str, Any]) -> str:
    how = facts["training"]
    options = lambda given: ", ".join(f"{k} = {v}" for k, v in given.items() if k != "name")
    lines = ["## Training\n", f"- Method: {how['title']} ({options(how['options'])})"]
    lines.append(f"- Paper: {how['paper']}")
    lines.append(f"- Model: {how['model']['name']} ({options(how['model'])})".replace(" ()", ""))
    channel = how["channel"]
    lines.append(f"- Channel: {channel['name']} ({options(channel)})".replace(" ()", ""))
    if facts["view"] is not None:
        which = ", the best on validation data" if facts["keep"] == "best" else ""
        lines.append(
            f"- Which model: the {facts['view']} one after round {facts['round']} of"
            f" {facts['rounds']}{which}"
        )
    lines.append(f"- Options of training: {options(how['training'])}")
    if "adapted" in facts:
        told = facts["adapted"]
        lines.append(f"- Adapted: {told['rounds']} local rounds on {told['rows']} rows of its own")
    if "attack" in how:
        lines.append(f"- Trained under an attack: {how['attack']['name']}")
    return "\n".join(lines) + "\n"


def _cost(facts: dict[str, Any]) -> str:
    spent = facts["bytes"]
    if spent is None:
        return ""
    mine = ""
    if "up" in spent:
        mine = (
            f"{facts['client']} sent {bytes_text(spent['up'])} and received"
            f" {bytes_text(spent['down'])}; "
        )
    return (
        f"## Cost\n\n{mine}all clients together sent {bytes_text(spent['up of all'])} and received"
        f" {bytes_text(spent['down of all'])}.\n"
    )

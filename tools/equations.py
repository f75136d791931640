"""Docstrings of methods as Markdown: their equations, written in Unicode for the terminal, become
LaTeX, which GitHub renders by itself and tools/site.py turns into MathML.

`coterie show NAME` prints the docstring as it stands, so that is where an equation is written.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable

FUNCTIONS = {"min", "max", "argmin", "mean", "cos", "sign", "log", "exp", "tr", "softmax"}
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "varepsilon", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi",
    "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "varphi", "ψ": "psi",
    "Δ": "Delta", "Ω": "Omega", "ℓ": "ell",
}  # fmt: skip
SIGNS = {
    "−": "-", "·": r"\cdot", "×": r"\times", "←": r"\leftarrow", "→": r"\to", "∈": r"\in",
    "∇": r"\nabla", "∂": r"\partial", "Σ": r"\sum", "‖": r"\Vert", "⟨": r"\langle",
    "⟩": r"\rangle", "⊙": r"\odot", "⊗": r"\otimes", "∪": r"\cup", "∩": r"\cap", "≤": r"\le",
    "≥": r"\ge", "≠": r"\ne", "½": r"\tfrac{1}{2}", "…": r"\dots", "∞": r"\infty",
    "⌈": r"\lceil", "⌉": r"\rceil", "<": r"\lt", ">": r"\gt", "|": r"\vert", "%": r"\%",
    "&": r"\&", "*": r"{}^{*}", "≈": r"\approx", "±": r"\pm",
}  # fmt: skip
ACCENTS = {"\u0303": "tilde", "\u0304": "bar", "\u0302": "hat"}
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", "0123456789+-T", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
LETTER = "A-Za-z" + "".join(GREEK)
# What stands below or above: {…}, (t), or a run of letters, digits and signs.
SCRIPT = re.compile(rf"\{{[^{{}}]*\}}|\([a-z]\)|½|[{LETTER}0-9×*\u0302-\u0304]+")
WORD = re.compile(r"[a-z]{2,}_[a-z_]+|[A-Za-z]{2,}(?:['’-][a-z]+)*")
# A capital and a letter that stand for a product of two symbols.
PRODUCTS = {"Np", "Md", "Nd"}
SHORT = ("min_", "max_", "mean", "argm")


def latex(text: str) -> str:
    """A line of Unicode mathematics as LaTeX; words in it become text."""
    source, made, i = _apart(text.strip()), "", 0
    while i < len(source):
        piece, i = _next(source, i)
        made += piece
    before = ""
    while before != made:  # words side by side are one text
        before, made = made, re.sub(r"\\text\{([^{}]*?) ?\} ?\\text\{ ?", r"\\text{\1 ", made)
    return re.sub(r" +", " ", made).strip()


def _apart(text: str) -> str:
    """Letters and their accents as two signs each."""
    return "".join(s if s in SIGNS else unicodedata.normalize("NFD", s) for s in text)


def _next(source: str, i: int) -> tuple[str, int]:
    """The LaTeX of what begins at i, and where it ends."""
    sign = source[i]
    if sign == " ":
        run = len(source) - len(source[i:].lstrip(" ")) - i if source[i:].strip() else 1
        return (r" \quad " if run > 1 else " "), i + run
    if sign == "`":
        end = source.index("`", i + 1)
        return _words(source[i + 1 : end].replace("_", r"\_")), end + 1
    if found := WORD.match(source, i):
        return _word(source, found)
    if sign in "aA" and re.match(r"[aA] [a-z]{2,}", source[i:]) and source[i - 1 : i] in (" ", ""):
        return _words(sign + " "), i + 2
    if sign == "√":
        end = _closing(source, i + 1) if source[i + 1] == "(" else i + 1
        inside = source[i + 1] if end == i + 1 else source[i + 2 : end]
        return rf"\sqrt{{{latex(inside)}}}", end + 1
    if sign in RAISED or sign in LOWERED:
        table = RAISED if sign in RAISED else LOWERED
        end = i
        while end < len(source) and source[end] in table:
            end += 1
        inside = "".join(table[s] for s in source[i:end]).replace("T", r"\top")
        return f"{'^' if table is RAISED else '_'}{{{inside}}}", end
    if sign in "_^":
        found = SCRIPT.match(source, i + 1)
        if found:
            return f"{sign}{{{_script(found[0])}}}", found.end()
        return rf"\{sign}", i + 1
    made = "\\" + GREEK[sign] + " " if sign in GREEK else SIGNS.get(sign, sign)
    if sign in SIGNS and made.startswith("\\"):
        made += " "
    if sign in "{}":
        made = "\\" + sign
    if (accent := ACCENTS.get(source[i + 1 : i + 2])) is not None:
        return rf"\{accent}{{{made.strip()}}}", i + 2
    return made, i + 1


def _word(source: str, found: re.Match[str]) -> tuple[str, int]:
    word, end = found[0], found.end()
    base = word.split("_")[0]
    if base in FUNCTIONS and base != word:
        word, end = base, found.start() + len(base)
    if word in ("min", "max", "cos", "log", "exp"):
        return f"\\{word} ", end
    if word in FUNCTIONS:
        return rf"\operatorname{{{word}}}", end
    if word == "dsub":
        return r"d_{\mathrm{sub}}", end
    if word in PRODUCTS:
        return " ".join(word), end
    before = " " if source[: found.start()].endswith(" ") else ""
    after = " " if source[end : end + 1] == " " else ""
    if source[end : end + 2] in (": ", ", "):  # the sign belongs to the word
        word, end, after = word + source[end], end + 1, " "
    return _words(before + word.replace("_", r"\_") + after), end


def _words(text: str) -> str:
    return rf"\text{{{text}}}"


def _script(text: str) -> str:
    inner = text[1:-1] if text.startswith("{") else text
    if re.fullmatch(r"[a-z]{2}[a-z]*|[0-9][a-z]", inner) and "sub" not in inner:
        return inner  # a run of indices, as in a_kl
    return latex(inner)


def _closing(source: str, start: int) -> int:
    depth = 0
    for i in range(start, len(source)):
        depth += (source[i] == "(") - (source[i] == ")")
        if depth == 0:
            return i
    raise ValueError(f"no closing bracket in {source!r}")


# --- what is mathematics, and what is prose -----------------------------------------------------

_MATH = re.compile(rf"[{''.join(GREEK)}{''.join(SIGNS)}√_^=+/\u0302-\u0304⁰-⁹₀-₉ᵀ]")
_RELATION = re.compile(r"←|=|≤|≥|min|max|argmin|Σ|<")


def plain_words(line: str) -> int:
    bare = re.sub(r"`[^`]*`", "", _apart(line))
    # A subscript is no word; what follows two letters belongs to a name, as in local_steps.
    bare = re.sub(rf"(?<![a-z][a-z])[_^](\{{[^}}]*\}}|[{LETTER}0-9]+)", "", bare)
    words = (word.split("_")[0] if word[:4] in SHORT else word for word in WORD.findall(bare))
    return sum(word not in FUNCTIONS | PRODUCTS | {"dsub"} for word in words)


def is_display(paragraph: str) -> bool:
    """Whether a paragraph of a docstring is an equation: a relation, more symbols than words."""
    if paragraph.startswith(("`", "1.")) or re.search(r"(:| then| with)$|[.] ", paragraph.rstrip()):
        return False
    symbols = len(re.findall(rf"[{LETTER}](?![A-Za-z])|[←=Σ‖∇−+]", paragraph))
    words = plain_words(paragraph)
    first = paragraph.splitlines()[0]
    return _RELATION.search(first) is not None and symbols > 2 * words and words <= 16


def in_prose(text: str) -> str:
    """Prose with its symbols as inline mathematics; what stands in backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _runs(part) for part in parts)


def _runs(text: str) -> str:
    tokens = re.findall(r"\s+|\S+", text)
    made: list[str] = []
    run: list[str] = []
    for i, token in enumerate(tokens):
        following = tokens[i + 2] if i + 2 < len(tokens) else ""
        if token.isspace() and run:
            run.append(token)
        elif not token.isspace() and _symbolic(token, "".join(run), following):
            run.append(token)
            if token[-1] in ".,;:" and _balanced("".join(run)):
                made.append(_inline("".join(run)))
                run = []
        else:
            made.append(_inline("".join(run)))
            made.append(token)
            run = []
    return "".join([*made, _inline("".join(run))])


def _balanced(text: str) -> bool:
    pairs = [("(", ")"), ("{", "}"), ("[", "]")]
    return all(text.count(a) == text.count(b) for a, b in pairs)


OPERATORS = ("=", "←", "+", "−", "/", "·", "<", "≤", "≥", "→", "×", "∈")


def _symbolic(token: str, run: str, following: str) -> bool:
    """Whether a piece of prose is mathematics, after a run of such pieces."""
    bare = token.strip("().,;:\"'")
    if not bare:
        return False
    if plain_words(bare) or '"' in token or "'s" in token:
        return False
    if re.fullmatch(r"[0-9.,%]+|[aAI]", bare):
        goes_on = run.rstrip().endswith(OPERATORS) or not _balanced(run)
        return goes_on or (following in OPERATORS and bare not in "aA")
    if bare in ("tr", "argmin"):
        return True
    return bool(_MATH.search(bare)) or re.fullmatch(rf"[{LETTER}]", bare) is not None


def _inline(run: str) -> str:
    """A run of symbols between dollars; brackets and signs around it that are prose stay out."""
    core = run.strip()
    space = run[len(run.rstrip()) :]
    before = after = ""
    while core.startswith("(") and core.count("(") > core.count(")"):
        core, before = core[1:], before + "("
    while core and (
        (core[-1] in ".,;:")
        or (core[-1] == ")" and core.count(")") > core.count("("))
        or re.search(rf"\s[{''.join(OPERATORS)}]$", core)
        or core[-1] == " "
    ):
        core, after = core[:-1], core[-1] + after
    if core.startswith("(") and core.endswith(")") and _closing(core, 0) == len(core) - 1:
        core, before, after = core[1:-1], before + "(", ")" + after
    worth = re.search(rf"[{LETTER}]", core) and _MATH.search(_apart(core))
    alone = re.fullmatch(rf"[B-HJ-Zb-z]|[{''.join(GREEK)}]", core)
    if not (worth or alone) or not _balanced(core) or core.startswith(OPERATORS):
        return run
    held = latex(" ".join(core.split())).replace(" ", HELD)
    return f"{before}${held}${after}{space}"


HELD = "\u0000"  # a space inside of mathematics, at which no line may be broken


# --- a docstring --------------------------------------------------------------------------------


def markdown(docstring: str, names: Iterable[str] = ()) -> str:
    """The Markdown of a docstring: prose, equations, and the table from symbols to arguments, in
    which the `names` of options are code.
    """
    made = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        if paragraph.startswith("==="):
            made.append(_table(paragraph, names))
        elif paragraph.startswith("1."):
            made.append(_listed(paragraph))
        else:
            made += [
                _display(p) if is_display(p) else _filled(in_prose(p)) for p in _cut(paragraph)
            ]
    return "\n\n".join(made) + "\n"


def _cut(paragraph: str) -> list[str]:
    """A paragraph whose last lines are an equation, in two."""
    head, colon, rest = paragraph.partition(":\n")
    return [head + ":", rest] if colon and is_display(rest) else [paragraph]


def _listed(paragraph: str) -> str:
    """A numbered list; what is further to the right goes on with an item, line by line."""
    made: list[str] = []
    for line in paragraph.splitlines():
        text = in_prose(line.strip()).replace(HELD, " ")
        if re.match(r"[0-9]+\.", line):
            made.append(text)
        else:
            made.append(f"    - {text}")
    return "\n".join(made)


def _filled(text: str) -> str:
    wrapped = textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)
    return wrapped.replace(HELD, " ")


def _display(paragraph: str) -> str:
    rows = []
    lines = _joined(paragraph.splitlines())
    goes_on = any(line.lstrip().startswith("=") for line in lines)
    for line in lines:
        pieces = [line.strip()] if goes_on else re.split(r"(?<=[;,])  +", line.strip())
        rows += [latex(piece) for piece in pieces]
    return "\n\n".join(f"```math\n{row}\n```" for row in rows)


def _joined(lines: list[str]) -> list[str]:
    """Lines of which the second goes on with the first's sentence, together."""
    made = [lines[0]]
    for line in lines[1:]:
        if not _RELATION.search(line) and re.match(r"\s*[a-z]{2,}\b", line):
            made[-1] += " " + line.strip()
        else:
            made.append(line)
    return made


def _table(paragraph: str, names: Iterable[str]) -> str:
    lines = paragraph.splitlines()
    width = lines[0].index("  ") + 2
    rows: list[list[str]] = []
    for line in lines[3:]:
        if line.startswith("==="):
            continue
        symbol, argument = line[:width].strip(), line[width:].strip()
        if symbol:
            rows.append([symbol, argument])
        else:
            rows[-1][1] += " " + argument
    cells = [f"| {_symbol(s)} | {_argument(a, names)} |" for s, a in rows]
    return "\n".join(["| symbol | argument |", "|---|---|", *cells])


def _symbol(text: str) -> str:
    if plain_words(text):
        return in_prose(text).replace(HELD, " ")
    pieces = re.split(r", (?![^(]*\))", text)
    return ", ".join(f"${latex(piece)}$" for piece in pieces)


def _argument(text: str, names: Iterable[str]) -> str:
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    parts = re.split(r"(`[^`]*`)", text)
    if known:
        code = re.compile(rf'\b(?:{known})\b(?: = (?:"[^"]*"|\{{[^}}]*\}}|\w+))?')
        parts = [p if p[:1] == "`" else code.sub(lambda m: f"`{m[0]}`", p) for p in parts]
    return in_prose("".join(parts)).replace(HELD, " ").replace("|", r"\|")

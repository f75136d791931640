"""Prepare the documentation for the site, and build it:

    python tools/site.py            # into .cache/site, stops at a dead link
    python tools/site.py --serve    # a local page that follows zensical's own server

Zensical has no hooks, so what pages need is done before it reads them, into .cache/pages:

- equations ($…$ and ```math, which GitHub renders by itself) become MathML, which browsers render
  without a script from another host;
- a link to a Markdown file of the repository outside docs/ leads to a copy of it on the site;
- a link to any other file outside docs/ becomes the file's path;
- pages of results are not searched: their many tables would crowd out the pages that explain.

A link to a file that does not exist stays as it is, so that the strict build stops at it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
DOCS, PAGES, SITE = ROOT / "docs", ROOT / ".cache/pages", ROOT / ".cache/site"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
FENCE = re.compile(r"^```math\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$|^~~~.*?^~~~$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
INLINE = re.compile(r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?![\w$])")


def mathml(latex: str, display: str) -> str:
    # The library takes & for a letter and forgets to write it as HTML.
    return convert(latex, display=display).replace("<mi>&</mi>", "<mi>&amp;</mi>")


def with_mathml(markdown: str) -> str:
    """The page with its equations as MathML; code stays."""
    made = FENCE.sub(
        lambda m: f'<div class="equation">{mathml(" ".join(m[1].split()), "block")}</div>', markdown
    )
    parts = CODE.split(made)
    return "".join(
        # In a span: Markdown takes <math> at the beginning of a line for a paragraph of its own.
        part if i % 2 else INLINE.sub(lambda m: f"<span>{mathml(m[1], 'inline')}</span>", part)
        for i, part in enumerate(parts)
    )


def outside(page: Path, markdown: str) -> list[Path]:
    """The Markdown files outside docs/ that a page links to."""
    found = []
    for _, _, target, _ in LINK.findall(markdown):
        path = (page.parent / target).resolve()
        if path.suffix == ".md" and path.is_file() and not path.is_relative_to(DOCS):
            found.append(path)
    return found


def relinked(page: Path, markdown: str, copies: dict[Path, Path]) -> str:
    """The page with links to what is on the site; `copies` has the place of files outside docs/."""
    place = copies.get(page, page.relative_to(DOCS) if page.is_relative_to(DOCS) else page)
    up = "../" * (len(place.parts) - 1)

    def new(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups()
        path = (page.parent / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            return link[0]
        if path in copies:
            return f"{mark}[{text}]({up}{copies[path]}{anchor})"
        if path.is_relative_to(DOCS):
            return f"{mark}[{text}]({up}{path.relative_to(DOCS)}{anchor})"
        if mark:  # a picture beside a copied page
            copy = Path("repository") / path.relative_to(ROOT)
            (PAGES / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, PAGES / copy)
            return f"![{text}]({up}{copy})"
        name = f"`{path.relative_to(ROOT)}`"
        return name if text.strip("`") == name.strip("`") else f"{text} ({name})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(p if i % 2 else LINK.sub(new, p) for i, p in enumerate(parts))


def prepare() -> list[Path]:
    """Write all pages of the site; gives the copies of files outside docs/."""
    shutil.rmtree(PAGES, ignore_errors=True)
    own = sorted(DOCS.rglob("*.md"))
    texts = {page: page.read_text(encoding="utf-8") for page in own}
    copies: dict[Path, Path] = {}
    for page in own:
        for path in outside(page, texts[page]):
            copies[path] = Path("repository") / path.relative_to(ROOT)
            texts.setdefault(path, path.read_text(encoding="utf-8"))
    for page, text in texts.items():
        target = PAGES / copies.get(page, page.relative_to(DOCS) if page in own else page)
        target.parent.mkdir(parents=True, exist_ok=True)
        head = UNSEARCHED if page.name == "result.md" or page == DOCS / "papers.md" else ""
        target.write_text(head + with_mathml(relinked(page, text, copies)), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            target = PAGES / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return sorted(copies.values())


ASSET = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*["']([^"']+)
    |<link\b(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*?\bhref\s*=\s*["']([^"']+)
    |url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""",
    re.VERBOSE | re.IGNORECASE,
)


def from_elsewhere(site: Path) -> list[str]:
    """What pages and styles would load from another host."""
    found = []
    for path in sorted(p for p in site.rglob("*") if p.suffix in (".html", ".css")):
        text = path.read_text(encoding="utf-8")
        for groups in ASSET.findall(text):
            address = next(filter(None, groups))
            if re.match(r"(https?:)?//", address):
                found.append(f"{path.relative_to(site)}: {address}")
    return found


def build(command: str = "build") -> int:
    prepare()
    strict = ["--strict"] if command == "build" else []
    done = subprocess.run([sys.executable, "-m", "zensical", command, *strict], cwd=ROOT)
    if done.returncode or command != "build":
        return done.returncode
    for line in from_elsewhere(SITE):
        print(f"loaded from another host: {line}")
        done.returncode = 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(build("serve" if "--serve" in sys.argv else "build"))

"""Take Vega and Vega-Lite from npm into the report's assets, with the licences of all that they are
built from.

    npm install --ignore-scripts --prefix FOLDER vega@6.4.0 vega-lite@6.4.3
    python tools/embed_vega.py FOLDER/node_modules
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "src/coterie/report/assets"
TAKEN = {"vega": "vega.min.js", "vega-lite": "vega-lite.min.js"}


def closure(modules: Path, names: list[str]) -> dict[str, dict]:
    """The packages that these are made of, themselves included, and what each says of itself."""
    found: dict[str, dict] = {}
    while names:
        name = names.pop()
        if name not in found and (modules / name / "package.json").is_file():
            found[name] = json.loads((modules / name / "package.json").read_text())
            names += found[name].get("dependencies", {})
    return found


def licences(modules: Path, packages: dict[str, dict]) -> str:
    """Every licence text once, headed by the packages that are under it."""
    under: dict[str, list[str]] = {}
    for name, about in sorted(packages.items()):
        files = sorted((modules / name).glob("LICEN[SC]E*"))
        text = files[0].read_text().strip() if files else f"Licence: {about.get('license')}"
        under.setdefault(text, []).append(f"{name} {about['version']}")
    parts = [f"{', '.join(names)}\n\n{text}" for text, names in under.items()]
    return f"\n\n{'-' * 80}\n\n".join(parts) + "\n"


def main(modules: Path) -> None:
    lines = [
        "# What is not ours",
        "",
        "Taken from the npm registry, unchanged, by `tools/embed_vega.py`; LICENSES.txt has the",
        "licences of them and of all that they are built from.",
        "",
        "| file | package | licence | SHA-256 |",
        "|---|---|---|---|",
    ]
    for name, file in TAKEN.items():
        about = json.loads((modules / name / "package.json").read_text())
        shutil.copyfile(modules / name / "build" / file, ASSETS / file)
        digest = hashlib.sha256((ASSETS / file).read_bytes()).hexdigest()
        package = f"{name} {about['version']}"
        lines.append(f"| {file} | {package} | {about['license']} | `{digest}` |")
    (ASSETS / "SOURCES.md").write_text("\n".join(lines) + "\n")
    # The command lines of packages are not in the bundles.
    packages = closure(modules, list(TAKEN))
    inside = {
        n: p
        for n, p in packages.items()
        if n.startswith(("vega", "d3", "topojson"))
        or n in ("internmap", "delaunator", "robust-predicates", "json-stringify-pretty-compact")
    }
    (ASSETS / "LICENSES.txt").write_text(licences(modules, inside))
    print("left out:", ", ".join(sorted(set(packages) - set(inside))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

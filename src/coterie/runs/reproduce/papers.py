"""All papers: importing them adds their tables and figures."""

from coterie.runs.reproduce import (
    fedu,
    fedu_figures,
    lpproj,
    lpproj_attacks,
    lpproj_bytes,
    lpproj_figures,
    lpproj_published,
    pfedme,
    pfedme_figures,
)

__all__ = [
    "fedu",
    "fedu_figures",
    "lpproj",
    "lpproj_attacks",
    "lpproj_bytes",
    "lpproj_figures",
    "lpproj_published",
    "pfedme",
    "pfedme_figures",
]

"""The papers' tables and figures, each as one command: what a paper printed, what comes out here,
and whether that agrees. One file per paper, or part of one, says which experiments stand behind
them.
"""

from coterie.runs.reproduce.base import TABLES, Block, Line, PaperTable, table_of

__all__ = ["TABLES", "Block", "Line", "PaperTable", "table_of"]

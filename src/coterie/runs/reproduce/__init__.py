"""The papers' tables, each as one command: what a paper printed, what comes out here, and whether
that agrees. One file per paper says which experiments stand behind its tables.
"""

from coterie.runs.reproduce.base import TABLES, Block, Line, PaperTable, table_of

__all__ = ["TABLES", "Block", "Line", "PaperTable", "table_of"]

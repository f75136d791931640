"""Tables, figures and a self-contained HTML page."""

from coterie.report.comparison import Comparison, Entry, Gain
from coterie.report.outcome import Outcome

__all__ = ["Comparison", "Entry", "Gain", "Outcome"]

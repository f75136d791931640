"""What rounds would take on a real network: options and presets, a forecast from the byte bill, and
rounds that go on without the clients that drop out.
"""

from coterie.network.forecast import (
    Forecast,
    forecast_experiment,
    forecast_result,
    peer_time,
    read_ledger,
    star_time,
)
from coterie.network.measure import measure_gradient_seconds
from coterie.network.options import ENGINES, Costs, LinkSpeeds, Network
from coterie.network.tcp import WINDOW, Wires, stalls

__all__ = [
    "ENGINES",
    "WINDOW",
    "Costs",
    "Forecast",
    "LinkSpeeds",
    "Network",
    "Wires",
    "forecast_experiment",
    "forecast_result",
    "measure_gradient_seconds",
    "peer_time",
    "read_ledger",
    "stalls",
    "star_time",
]

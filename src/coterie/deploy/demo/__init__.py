"""`coterie deploy-demo`: a real federation on this machine, from keys to the final models, with a
client killed in the middle.

Everything goes through the commands a user would type, each in a process of its own; what they
write stays in the folder, to look at and to copy.
"""

from coterie.deploy.demo.outcome import Row, table, verdict
from coterie.deploy.demo.processes import DemoFailed
from coterie.deploy.demo.with_hub import with_hub
from coterie.deploy.demo.with_peers import with_peers

__all__ = ["DemoFailed", "Row", "table", "verdict", "with_hub", "with_peers"]

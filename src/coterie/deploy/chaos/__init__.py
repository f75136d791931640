"""`coterie chaos`: a seeded schedule of faults against a real federation on this machine.

Every participant is a process of its own and is reached through a proxy of its own. Processes are
killed and stopped, links are cut, held and slowed, disks are full, clocks jump; every fault ends,
and a round must follow. In the end all models must be the simulator's.
"""

from coterie.deploy.chaos.carry_out import Ended, carry_out
from coterie.deploy.chaos.schedule import KINDS, Event, schedule

__all__ = ["KINDS", "Ended", "Event", "carry_out", "schedule"]

"""The network of bench/network.py: a namespace per participant, links with a bandwidth, and a line
that holds packets back. `python bench/network_lab.py` is that line.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve()
ROUTER, PREFIX = "cotr", "cot"
MBIT = 125_000.0


class Setting(NamedTuple):
    """A network: one way in seconds, bytes per second of every participant (each way; None: no
    limit).
    """

    latency: float
    bandwidth: float | None


FREE = Setting(0.0, None)


def sh(command: str, *, check: bool = True) -> None:
    subprocess.run(command.split(), check=check, capture_output=not check)


def inside(namespace: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *command]


def address(k: int) -> str:
    return f"10.77.{k}.2"


def delay_line() -> None:
    """Hold every packet that is routed to this TUN device for so long as the last line of the input
    says, then put it back.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        device, 0x400454CA, struct.pack("16sH", b"delay0", 0x0001 | 0x1000)
    )  # TUNSETIFF: IFF_TUN, IFF_NO_PI
    os.nice(-20)
    print("up", flush=True)
    seconds = 0.0
    line: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        now = time.monotonic()
        while line and line[0][0] <= now:
            with contextlib.suppress(OSError):
                os.write(device, line.popleft()[1])
        wait = max(0.0, line[0][0] - time.monotonic()) if line else None
        ready = select.select([device, sys.stdin], [], [], wait)[0]
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            seconds = float(line)
        if device in ready:
            due = time.monotonic() + seconds
            with contextlib.suppress(BlockingIOError):
                while True:
                    line.append((due, os.read(device, 65536)))


class Lab:
    """Namespaces for so many participants. `with Lab(n) as lab: lab.shape(setting)`."""

    def __init__(self, count: int) -> None:
        self.names = [f"{PREFIX}{k}" for k in range(count)]

    def __enter__(self) -> Lab:
        self._remove()
        for name in (ROUTER, *self.names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for key in (
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ):
            subprocess.run(inside(ROUTER, "sysctl", "-qw", key), check=True)
        command = inside(ROUTER, sys.executable, str(HERE))
        self.line = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        assert self.line.stdout is not None
        assert self.line.stdout.readline() == "up\n"
        sh(f"ip -n {ROUTER} link set delay0 up txqueuelen 10000")
        sh(f"ip -n {ROUTER} route add default dev delay0 table 100")
        for k, name in enumerate(self.names):
            sh(f"ip link add in{k} netns {name} type veth peer name out{k} netns {ROUTER}")
            sh(f"ip -n {name} addr add {address(k)}/24 dev in{k}")
            sh(f"ip -n {ROUTER} addr add 10.77.{k}.1/24 dev out{k}")
            sh(f"ip -n {name} link set in{k} up")
            sh(f"ip -n {ROUTER} link set out{k} up")
            sh(f"ip -n {name} route add default via 10.77.{k}.1")
            sh(f"ip -n {ROUTER} rule add iif out{k} lookup 100")
            # Starts anew after a pause like CUBIC, most machines' default, which a namespace may
            # not choose here; BBR, the default here, does not.
            subprocess.run(
                inside(name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"), check=True
            )
        return self

    def shape(self, setting: Setting) -> None:
        assert self.line.stdin is not None
        self.line.stdin.write(f"{setting.latency}\n")
        self.line.stdin.flush()
        for k, name in enumerate(self.names):
            for where, device in ((name, f"in{k}"), (ROUTER, f"out{k}")):
                if setting.bandwidth is None:
                    sh(f"tc -n {where} qdisc del dev {device} root", check=False)
                else:
                    sh(
                        f"tc -n {where} qdisc replace dev {device} root tbf rate"
                        f" {int(8 * setting.bandwidth)}bit burst 2kb limit 4mb"
                    )

    def __exit__(self, *_: object) -> None:
        self.line.kill()
        self.line.wait()
        self._remove()

    def _remove(self) -> None:
        for name in (ROUTER, *self.names):
            sh(f"ip netns del {name}", check=False)


if __name__ == "__main__":
    delay_line()

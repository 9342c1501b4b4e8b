"""Starts servers again and again while another program opens connections and takes free ports, and counts collisions.

`collisions.py MINGLE N` starts N servers with four ports each, in two ways: with ports that were probed and released, as
programs get them by bind to port 0, and with those of `mingle run --ports 4`. A start fails if one of its ports is taken.
Run it in a network namespace of its own.
"""

import collections
import multiprocessing
import pathlib
import socket
import struct
import subprocess
import sys
import time

PORTS = 4
# A server as most are: SO_REUSEADDR, which create_server sets, and the ports by their numbers.
SERVER = "import socket, sys; servers = [socket.create_server(('', int(port))) for port in sys.argv[1:]]"


def steal(held_at_once, stolen, ends):
    """Takes a free port and opens a connection, and gives up the oldest of both."""
    server = socket.create_server(("127.0.0.1", 0))
    held = collections.deque()
    while not ends.value:
        try:
            # Without SO_REUSEADDR, with which the kernel would choose from half of the range alone.
            thief = socket.socket()
            thief.bind(("", 0))
            connection = socket.create_connection(server.getsockname())
        except OSError:
            # No port is free.
            held.popleft()
            continue
        # Closed by a reset, so that its port is free at once.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        held.append((thief, connection, server.accept()[0]))
        stolen.value += 1
        if len(held) > held_at_once:
            for each in held.popleft():
                each.close()


def probed():
    probes = [socket.socket() for _ in range(PORTS)]
    for probe in probes:
        probe.bind(("", 0))
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return [sys.executable, "-c", SERVER, *ports]


def collides(line):
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60)
    if ended.returncode and "Address already in use" not in ended.stderr:
        sys.exit(f"{line}: {ended.stderr}")
    return ended.returncode != 0


def main():
    mingle, number = sys.argv[1], int(sys.argv[2])
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    stolen, ends = multiprocessing.Value("L", 0), multiprocessing.Value("b", 0)
    # Each time it takes two ports, and three descriptors.
    thief = multiprocessing.Process(target=steal, args=(min(300, (high - low) // 4), stolen, ends), daemon=True)
    thief.start()
    places = [f"{{port{place}}}" for place in range(1, PORTS + 1)]
    run = [mingle, "run", "-j", "servers", "-w", "1", "--ports", str(PORTS), "--", sys.executable, "-c", SERVER, *places]
    began = time.monotonic()
    released, held = 0, 0
    for _ in range(number):
        released += collides(probed())
        held += collides(run)
    rate = stolen.value / (time.monotonic() - began)
    ends.value = 1
    thief.join()
    print(f"probed and released: {released} of {number} starts collide; --ports: {held} of {number}")
    print(f"{rate:.0f} connections and {rate:.0f} ports a second were taken")


if __name__ == "__main__":
    main()

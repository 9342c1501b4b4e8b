"""multicast.py JOB ADDRESS WORLD: the least that a script can do. Each node sends one packet to a group, answers those
that it has not heard before, and takes the lowest address for rank 0. Nothing is repeated, and nothing is proved."""

import socket
import sys

GROUP, PORT = "239.195.8.8", 29497

job, own, world = sys.argv[1], sys.argv[2], int(sys.argv[3])
heard = {own}

hears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
hears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
hears.bind(("", PORT))
hears.setsockopt(
    socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(own)
)
word = f"{job} {own}".encode()
hears.sendto(word, (GROUP, PORT))
while len(heard) < world:
    packet, sender = hears.recvfrom(1500)
    name, address = packet.decode().split()
    if name == job and address not in heard:
        heard.add(address)
        hears.sendto(word, sender)

order = sorted(heard, key=socket.inet_aton)
print(f"export MASTER_ADDR={order[0]} RANK={order.index(own)}", flush=True)
sys.stdin.read()

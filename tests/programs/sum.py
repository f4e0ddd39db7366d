"""Ranks meet at MASTER_ADDR:MASTER_PORT, sum their numbers and print the sum. Standard library only."""

import os
import socket
import struct

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def receive(connection):
    data = b""
    while len(data) < 8:
        more = connection.recv(8 - len(data))
        if not more:
            raise SystemExit("the other side went away")
        data += more
    return struct.unpack("!q", data)[0]


number = rank + 1
if rank == 0:
    with socket.create_server(master) as server:
        peers = [server.accept()[0] for _ in range(world_size - 1)]
        total = number + sum(receive(peer) for peer in peers)
        for peer in peers:
            peer.sendall(struct.pack("!q", total))
            peer.close()
else:
    while True:
        try:
            connection = socket.create_connection(master, timeout=30)
            break
        except ConnectionRefusedError:
            pass  # rank 0 does not listen yet
    with connection:
        connection.sendall(struct.pack("!q", number))
        total = receive(connection)

print(f"rank {rank} of {world_size}: the sum is {total}")

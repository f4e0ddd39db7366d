"""Training that goes on from a checkpoint: an all-reduce over sockets in each step. Standard library only.

Arguments: the checkpoint's file, the number of steps, and the rank and the step of a crash in the first attempt.
"""

import json
import os
import socket
import struct
import sys
import time
import traceback

env = os.environ
rank, world_size = int(env["RANK"]), int(env["WORLD_SIZE"])
attempt = int(env["TORCHELASTIC_RESTART_COUNT"])
master = env["MASTER_ADDR"], int(env["MASTER_PORT"])


def meet():
    """Rank 0's connections to all others, theirs to rank 0."""
    if rank == 0:
        with socket.create_server(master) as server:
            return [server.accept()[0] for _ in range(world_size - 1)]
    give_up = time.monotonic() + 60
    while True:
        try:
            return [socket.create_connection(master)]
        except ConnectionRefusedError:
            # Rank 0 is not there yet.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def receive(connection):
    data = b""
    while len(data) < 8:
        more = connection.recv(8 - len(data))
        if not more:
            raise ConnectionError("the other side went away")
        data += more
    return struct.unpack("!q", data)[0]


def all_reduce(peers, number):
    if rank == 0:
        number += sum(receive(peer) for peer in peers)
    for peer in peers:
        peer.sendall(struct.pack("!q", number))
    return number if rank == 0 else receive(peers[0])


def load(checkpoint):
    if rank != 0 or not os.path.exists(checkpoint):
        return 0, 0
    with open(checkpoint) as file:
        return json.load(file)


def save(checkpoint, state):
    if rank == 0:
        with open(checkpoint + ".new", "w") as file:
            json.dump(state, file)
        os.replace(checkpoint + ".new", checkpoint)


def main(checkpoint, steps, crash_rank, crash_step):
    peers = meet()
    step, total = (all_reduce(peers, number) for number in load(checkpoint))
    print(f"attempt {attempt} at port {master[1]} goes on after step {step}")
    while step < int(steps):
        step += 1
        if (attempt, rank, step) == (0, int(crash_rank), int(crash_step)):
            raise ValueError(f"loss is NaN at step {step}")
        total += all_reduce(peers, step * (rank + 1))
        save(checkpoint, (step, total))
    print(f"sum {total} after step {step}")


try:
    main(*sys.argv[1:])
except Exception as error:
    # As torch's `record` writes it.
    extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    with open(env["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}, file)
    raise

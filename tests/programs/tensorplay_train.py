"""TensorPlay's distributed training on CPUs: each rank has its share of the data, gradients are averaged by all_reduce.

Arguments: the checkpoint's file, the number of steps, and the step at which rank 1 crashes in the first attempt.
"""

import json
import os
import sys

import tensorplay as tp
import tensorplay.distributed as dist
from tensorplay.distributed.elastic.multiprocessing.errors import record

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


@record
def main(checkpoint, steps, crash_step):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    step, weight = 0, tp.zeros(1)
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            step, value = json.load(file)
        weight = tp.tensor([value])
    print(f"attempt {attempt}: rank {rank} of {world_size} on {dist.get_backend()} goes on after step {step}")
    # y = 3 x, at points that are no other rank's.
    x = tp.tensor([float(point) for point in range(1 + rank, 9, world_size)])
    while step < int(steps):
        step += 1
        if (attempt, rank, step) == (0, 1, int(crash_step)):
            raise ValueError(f"loss is NaN at step {step}")
        weight = tp.tensor([weight.item()], requires_grad=True)
        loss = ((weight * x - 3.0 * x) ** 2).mean()
        loss.backward()
        gradient = weight.grad
        dist.all_reduce(gradient)
        weight = tp.tensor([weight.item() - 0.01 * gradient.item() / world_size])
        dist.barrier()
        if rank == 0:
            with open(checkpoint + ".new", "w") as file:
                json.dump((step, weight.item()), file)
            os.replace(checkpoint + ".new", checkpoint)
    print(f"rank {rank}: weight {weight.item():.3f} after step {step}")
    dist.destroy_process_group()


main(*sys.argv[1:])

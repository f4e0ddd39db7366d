"""Workers that run under TensorPlay's `record`: rank 1 raises, the others wait to be stopped."""
import os
import time

from tensorplay.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("loss is NaN at step 17")
    time.sleep(600)


main()

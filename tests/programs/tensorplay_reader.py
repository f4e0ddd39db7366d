"""Prints what TensorPlay's ProcessFailure makes of an error file: its time, message and call stack, one line of JSON."""
import json
import sys

from tensorplay.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

failure = ProcessFailure(local_rank=1, pid=int(sys.argv[2]), exitcode=int(sys.argv[3]), error_file=sys.argv[1])
print(json.dumps({
    "timestamp": failure.timestamp,
    "message": failure.message["message"],
    "callstack": failure.message["extraInfo"]["py_callstack"],
    "report": str(ChildFailedError("trainer", {1: failure})),
}))

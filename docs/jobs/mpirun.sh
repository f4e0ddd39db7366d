#!/bin/sh
# One rankrun on each host of Open MPI's mpirun: HOSTS=node1,node2 sh mpirun.sh train.py --lr 0.1
#
# LOGS: a directory that all hosts share. WORKERS: how many on each host, as -n takes it. MASTER: the first host's name or
# address, as the others reach it; mpirun does not tell it to its processes.
set -eu
: "${HOSTS:?expected the hosts, such as node1,node2}"
logs=${LOGS:-logs}

# From SIGTERM to SIGKILL mpirun gives 1 s unless told otherwise, and always waits all of it: workers get a little less.
code=0
mpirun --host "$HOSTS" --map-by ppr:1:node --bind-to none \
    --mca odls_base_sigkill_timeout "${GRACE:-20}" \
    rankrun --master-addr "${MASTER:-${HOSTS%%,*}}" -n "${WORKERS:-auto}" \
    --shutdown-timeout "$((${GRACE:-20} * 3 / 4))" --redirects 3 --log-dir "$logs" "$@" || code=$?
rankrun result "$logs" || :
exit "$code"

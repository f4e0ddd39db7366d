//! What an agent adds on one host: the environment contract, restarts, topology, and the records of a run.
//! Not here: supervising one group (`rankrun`), arguments and console (`rankrun-cli`).

#![forbid(unsafe_code)]

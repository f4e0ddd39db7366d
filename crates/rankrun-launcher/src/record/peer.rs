//! What another node of the job has written down by now, against what this one is told: [`Plan::disagreement`]. Not here: the
//! results of all nodes (`job`).

use std::ffi::OsStr;

use rankrun::crates::logs::Run;
use rankrun::crates::types::escape_os_str;

use super::run_record::{RecordState, RunRecord};
use crate::plan::Plan;
use crate::topology::Topology;

impl Plan {
    /// Whether another node of this start has another world size, as far as it is known by now: the text says so, and why. `None`
    /// where nodes share no log directory.
    ///
    /// Looks at one node, the first but for that one itself: reads two small files, whatever the number of nodes. Of two nodes
    /// that look after their workers have started, one sees the other.
    #[must_use]
    pub fn disagreement(&self) -> Option<String> {
        let topology = self.topology();
        let peer = usize::from(topology.node_rank == 0);
        let dir = self.logs().part_of_node(OsStr::new(self.run_id()), peer)?;
        let run = Run::open(&dir).ok().filter(Run::goes_on)?;
        let what = differs(topology, &RunRecord::read(&dir).ok()?)?;
        Some(format!("{what} ({}): all nodes need the same --nnodes and -n", escape_os_str(run.dir().as_os_str())))
    }
}

fn differs(own: &Topology, peer: &RunRecord) -> Option<String> {
    let workers = peer.attempts.last()?.workers.len();
    let is_of_this_start = peer.state == RecordState::Running && peer.restart_count == own.restart_count;
    if !is_of_this_start || (peer.nodes, workers) == (own.nodes, own.local_world_size) {
        return None;
    }
    Some(format!(
        "WORLD_SIZE={} on node {} (nodes: {}, workers on each: {}) and WORLD_SIZE={} on node {} (nodes: {}, workers on each: {workers}) disagree",
        own.world_size(),
        own.node_rank,
        own.nodes,
        own.local_world_size,
        peer.nodes * workers,
        peer.node_rank,
        peer.nodes,
    ))
}

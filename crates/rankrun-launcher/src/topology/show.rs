//! A topology as a table for people: its `Display`. Not here: JSON, which is derived.

use std::fmt;

use super::Topology;

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: [(&str, String); 8] = [
            ("source", self.source.to_string()),
            ("nodes", self.nodes.to_string()),
            ("node_rank", self.node_rank.to_string()),
            ("local_world_size", self.local_world_size.to_string()),
            ("master_addr", self.master_addr.clone()),
            ("master_port", self.master_port.to_string()),
            ("run_id", self.run_id.clone().unwrap_or_else(|| "-".to_owned())),
            ("restart_count", self.restart_count.to_string()),
        ];
        let width = rows.iter().map(|(_, value)| value.chars().count()).max().unwrap_or(0);
        for (i, (field, value)) in rows.iter().enumerate() {
            let newline = if i > 0 { "\n" } else { "" };
            match self.origins.get(field) {
                Some(from) => write!(f, "{newline}{field:16}  {value:width$}  {from}")?,
                None => write!(f, "{newline}{field:16}  {value}")?,
            }
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

//! torchrun's arguments about nodes and their meeting: [`NodesArgs`], and what they ask of a topology.
//!
//! Not here: what the environment and a batch system say, and whether that fits together (`rankrun-launcher`).

use std::net::Ipv6Addr;
use std::str::FromStr;

use rankrun::crates::types::escape_line;
use rankrun_launcher::{MAX_NODES, STATIC_PORT, TopologyArgs, TopologyChoice};

/// torchrun's port of `--rdzv-backend c10d` where none is given.
const C10D_PORT: u16 = 29400;

/// What a host is to itself.
const OWN_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The option that has the port, if it is this one.
const ENDPOINT: &str = "--rdzv-endpoint";

/// How many nodes there are, which one this is, and where they meet.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct NodesArgs {
    /// How many nodes take part; each has its own rankrun, with the same arguments but --node-rank
    /// [default: what the batch system says, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) nnodes: Option<Nnodes>,

    /// Which of the nodes this one is, from 0 [default: what the batch system says, or 0]
    #[arg(long, value_name = "RANK", value_parser = parse_node_rank)]
    pub(crate) node_rank: Option<usize>,

    /// MASTER_ADDR: where rank 0 listens [default: $MASTER_ADDR, what the batch system says, or 127.0.0.1]
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    pub(crate) master_addr: Option<String>,

    /// MASTER_PORT: at which port, 0 for a free one [default: $MASTER_PORT, or a free one; with more nodes than one the
    /// same on each]
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub(crate) master_port: Option<u16>,

    /// One node on its own, whatever the environment says of others, and without a rendezvous: 127.0.0.1 and a free port,
    /// unless --master-addr and --master-port are given
    #[arg(long)]
    pub(crate) standalone: bool,

    /// Where rank 0 listens, as HOST or HOST:PORT; before --master-addr and --master-port
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) rdzv_endpoint: Option<String>,

    /// static or c10d: nodes find each other without one, so there is no difference; others need torchrun
    #[arg(long, value_name = "BACKEND")]
    pub(crate) rdzv_backend: Option<String>,

    /// Accepted; there is nothing to configure
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = parse_conf)]
    pub(crate) rdzv_conf: Option<String>,

    /// MASTER_ADDR of a single node that is given no other
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    pub(crate) local_addr: Option<String>,

    /// What may say how the job is laid out: auto (arguments, else Slurm, Kubernetes or MPI, else one node), static
    /// (arguments only), slurm, kubernetes, mpi or none
    #[arg(long, value_name = "SOURCE", default_value = "auto", help_heading = "Nodes")]
    pub(crate) topology: TopologyChoice,
}

/// The value of `--nnodes`: from so many to so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nnodes {
    least: usize,
    most: usize,
}

impl FromStr for Nnodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse().ok().filter(|count| (1..=MAX_NODES).contains(count));
        let (least, most) = text.split_once(':').unwrap_or((text, text));
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Self { least, most }),
            _ => Err(format!("expected a number of nodes from 1 to {MAX_NODES}, or the same one twice as in 2:2")),
        }
    }
}

/// Arguments about nodes that need what there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodesError {
    #[error(
        "invalid value '{least}:{most}' for '--nnodes': nodes that come and go need a dynamic rendezvous, which rankrun does not have: \
         expected a fixed number, with --node-rank and --master-addr on each node (or use torchrun)"
    )]
    Elastic { least: usize, most: usize },
    #[error(
        "invalid value '{}' for '--rdzv-backend': expected static or c10d: rankrun has no other rendezvous (use --node-rank and \
         --master-addr on each node, or torchrun)", escape_line(.0)
    )]
    Backend(String),
    #[error("invalid value '{}' for '--rdzv-endpoint': expected HOST or HOST:PORT, such as node0:29500 or [::1]:29500", escape_line(.0))]
    Endpoint(String),
    #[error(
        "invalid value '{}' for '{option}': port 0 is another one on each of {nodes} nodes: expected a port from 1 to 65535",
        escape_line(.value)
    )]
    FreePort { option: &'static str, value: String, nodes: usize },
}

impl NodesArgs {
    /// What they ask of the topology.
    pub(crate) fn topology(&self, run_id: Option<&str>) -> Result<TopologyArgs, NodesError> {
        let nodes = match self.nnodes {
            Some(Nnodes { least, most }) if least != most => return Err(NodesError::Elastic { least, most }),
            nnodes => nnodes.map(|nnodes| nnodes.most),
        };
        let (option, master_addr, port) = self.meeting()?;
        if let Some(nodes) = nodes.filter(|nodes| *nodes > 1 && port == Some(0)) {
            let value = self.rdzv_endpoint.clone().filter(|_| option == ENDPOINT).unwrap_or_else(|| "0".to_owned());
            return Err(NodesError::FreePort { option, value, nodes });
        }
        Ok(TopologyArgs {
            choice: self.topology,
            nodes,
            node_rank: self.node_rank,
            master_addr,
            local_addr: self.local_addr.clone(),
            // Without one a free one is found.
            master_port: port.filter(|port| *port > 0),
            run_id: run_id.map(str::to_owned),
            standalone: self.standalone,
        })
    }

    /// What is said where a rendezvous is given that does not count, unless it says no more than that.
    pub(crate) fn ignored(&self) -> Option<String> {
        if !self.standalone {
            return None;
        }
        let backend = self.rdzv_backend.as_deref().filter(|backend| !["", "static", "c10d"].contains(backend));
        let is_other = |text: &&str| {
            let is_own = |(host, port): (String, Option<u16>)| port == Some(0) && OWN_HOSTS.contains(&host.as_str());
            !text.is_empty() && !endpoint(text).is_ok_and(is_own)
        };
        let given = [("--rdzv-backend", backend), (ENDPOINT, self.rdzv_endpoint.as_deref().filter(is_other))];
        let given = given.iter().filter_map(|(option, value)| Some(format!("{option} {}", escape_line((*value)?))));
        let given: Vec<String> = given.collect();
        let verb = match given.len() {
            0 => return None,
            1 => "does",
            _ => "do",
        };
        Some(format!(
            "{} {verb} not count with --standalone: give --master-addr and --master-port for another meeting place than \
             127.0.0.1 and a free port",
            given.join(" and ")
        ))
    }

    /// The host and port that are given, and by which option the port is.
    fn meeting(&self) -> Result<(&'static str, Option<String>, Option<u16>), NodesError> {
        let master = ("--master-port", self.master_addr.clone(), self.master_port);
        if self.standalone {
            // As torchrun has it, a rendezvous does not count then.
            return Ok(master);
        }
        let usual = match self.rdzv_backend.as_deref() {
            None | Some("static" | "") => STATIC_PORT,
            Some("c10d") => C10D_PORT,
            Some(other) => return Err(NodesError::Backend(other.to_owned())),
        };
        match self.rdzv_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            None => Ok(master),
            Some(text) => {
                let (host, port) = endpoint(text)?;
                Ok((ENDPOINT, Some(host), Some(port.unwrap_or(usual))))
            }
        }
    }
}

/// Takes `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT` apart; the brackets of an IPv6 address stay off.
fn endpoint(text: &str) -> Result<(String, Option<u16>), NodesError> {
    let wrong = || NodesError::Endpoint(text.to_owned());
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            match rest.strip_prefix(':') {
                None if !rest.is_empty() => return Err(wrong()),
                port => (host, port),
            }
        }
        // More than one colon and no brackets: an IPv6 address alone.
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if !is_host(host) || text.starts_with('[') && !is_ipv6(host) {
        return Err(wrong());
    }
    let port = port.map(str::parse).transpose().map_err(|_| wrong())?;
    Ok((host.to_owned(), port))
}

fn parse_node_rank(text: &str) -> Result<usize, String> {
    let rank = text.parse().ok().filter(|rank| *rank < MAX_NODES);
    rank.ok_or_else(|| {
        format!("expected a node's rank, from 0 to the number of nodes less one (at most {})", MAX_NODES - 1)
    })
}

fn parse_host(text: &str) -> Result<String, String> {
    // torchrun takes brackets off here too.
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|address| is_ipv6(address));
    match address {
        Some(address) => Ok(address.to_owned()),
        None if is_host(text) && !text.starts_with('[') => Ok(text.to_owned()),
        None => Err("expected the name or address of a host, not empty, without spaces and without a port (that is \
                     --master-port), such as node0, 10.0.0.1 or ::1"
            .to_owned()),
    }
}

/// Whether it can be a name or an address; a colon is in addresses of IPv6 only.
fn is_host(text: &str) -> bool {
    let is_word = !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    is_word && (!text.contains(':') || is_ipv6(text))
}

/// Whether it is an address of IPv6, which may have a zone, as `fe80::1%eth0`.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(|zone| !zone.is_empty())
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected a port from 1 to 65535, or 0 for a free one".to_owned())
}

fn parse_conf(text: &str) -> Result<String, String> {
    let is_pair =
        |pair: &str| pair.trim().is_empty() || pair.split_once('=').is_some_and(|(key, _)| !key.trim().is_empty());
    if text.split(',').all(is_pair) {
        Ok(text.to_owned())
    } else {
        Err("expected KEY=VALUE, or several separated by commas, such as timeout=60".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(change: impl FnOnce(&mut NodesArgs)) -> Result<TopologyArgs, String> {
        let mut args = NodesArgs::default();
        change(&mut args);
        args.topology(None).map_err(|error| error.to_string())
    }

    fn nnodes(text: &str) -> Option<Nnodes> {
        Some(text.parse().unwrap())
    }

    fn meeting(change: impl FnOnce(&mut NodesArgs)) -> (Option<String>, Option<u16>) {
        let args = topology(change).unwrap();
        (args.master_addr, args.master_port)
    }

    #[test]
    fn a_number_of_nodes_is_read_or_refused() {
        assert_eq!(nnodes("2:2"), nnodes("2"));
        for wrong in ["", "0", "-1", "2:1", "1:", "a", "1:2:3", "65537"] {
            assert!(wrong.parse::<Nnodes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_arguments_all_is_open() {
        assert_eq!(topology(|_| {}), Ok(TopologyArgs::default()));
    }

    #[test]
    fn nodes_meet_at_the_endpoint_or_else_at_the_master() {
        let host = |host: &str, port| (Some(host.to_owned()), port);
        let args = topology(|args| {
            (args.nnodes, args.node_rank) = (nnodes("2"), Some(1));
            (args.master_addr, args.master_port) = (Some("node0".to_owned()), Some(1234));
        });
        let (master_addr, master_port) = host("node0", Some(1234));
        let expected =
            TopologyArgs { nodes: Some(2), node_rank: Some(1), master_addr, master_port, ..TopologyArgs::default() };
        assert_eq!(args, Ok(expected));
        let at = |backend: &str, endpoint: &str| {
            meeting(|args| {
                args.rdzv_backend = Some(backend.to_owned());
                args.rdzv_endpoint = Some(endpoint.to_owned());
                args.master_addr = Some("not this".to_owned());
            })
        };
        assert_eq!(at("static", "node0"), host("node0", Some(29500)));
        assert_eq!(at("c10d", "node0"), host("node0", Some(29400)));
        assert_eq!(at("c10d", "localhost:0"), host("localhost", None));
        assert_eq!(at("c10d", "[::1]:7"), host("::1", Some(7)));
        assert_eq!(at("c10d", "fe80::1"), host("fe80::1", Some(29400)));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_without_a_port() {
        for (text, host) in [
            ("node0.example", "node0.example"),
            ("10.0.0.1", "10.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
        ] {
            assert_eq!(parse_host(text), Ok(host.to_owned()));
        }
        for wrong in ["", "a b", "a:1", "a:1:2", "[::1]:29500", "[::1", "[a]", "[]", "tcp://a", "fe80::1%"] {
            let text = parse_host(wrong).unwrap_err();
            assert!(text.contains("without a port") && text.contains("::1"), "{wrong}: {text}");
        }
    }

    #[test]
    fn standalone_looks_at_no_rendezvous() {
        let args = topology(|args| {
            args.standalone = true;
            args.rdzv_backend = Some("etcd".to_owned());
            args.rdzv_endpoint = Some("elsewhere".to_owned());
        });
        assert_eq!(args, Ok(TopologyArgs { standalone: true, ..TopologyArgs::default() }));
    }

    #[test]
    fn standalone_says_which_rendezvous_it_leaves_aside() {
        let ignored = |standalone, backend: Option<&str>, endpoint: Option<&str>| {
            let (rdzv_backend, rdzv_endpoint) = (backend.map(str::to_owned), endpoint.map(str::to_owned));
            NodesArgs { standalone, rdzv_backend, rdzv_endpoint, ..NodesArgs::default() }.ignored()
        };
        let text = ignored(true, None, Some("foo:1")).unwrap();
        assert_eq!(
            text,
            "--rdzv-endpoint foo:1 does not count with --standalone: give --master-addr and --master-port for another \
             meeting place than 127.0.0.1 and a free port"
        );
        let text = ignored(true, Some("etcd"), Some("a\nb")).unwrap();
        assert!(text.starts_with(r"--rdzv-backend etcd and --rdzv-endpoint a\nb do not count"), "{text}");
        let text = ignored(true, Some("etcd"), None).unwrap();
        assert!(text.starts_with("--rdzv-backend etcd does not count with --standalone"), "{text}");
        // What it means anyway.
        assert_eq!(ignored(true, Some("c10d"), Some("localhost:0")), None);
        assert_eq!(ignored(true, Some("static"), None), None);
        assert_eq!(ignored(false, None, Some("foo:1")), None);
    }

    #[test]
    fn what_cannot_be_done_is_refused_in_one_sentence() {
        type Change = fn(&mut NodesArgs);
        let cases: [(Change, &[&str]); 9] = [
            (|args| args.nnodes = nnodes("1:4"), &["'--nnodes'", "1:4", "fixed number", "torchrun"]),
            (|args| args.rdzv_backend = Some("etcd".to_owned()), &["'--rdzv-backend'", "'etcd'", "static or c10d"]),
            (|args| args.rdzv_endpoint = Some("host:port".to_owned()), &["'host:port'", "HOST:PORT"]),
            (|args| args.rdzv_endpoint = Some("[::1".to_owned()), &["'[::1'", "[::1]:29500"]),
            (|args| args.rdzv_endpoint = Some("a:1:2".to_owned()), &["'a:1:2'", "HOST:PORT", "[::1]:29500"]),
            (|args| args.rdzv_endpoint = Some("[a]:1".to_owned()), &["'[a]:1'", "HOST:PORT", "[::1]:29500"]),
            (|args| args.rdzv_endpoint = Some("a b:1".to_owned()), &["'a b:1'", "HOST:PORT"]),
            (
                |args| (args.nnodes, args.master_port) = (nnodes("2"), Some(0)),
                &["'0' for '--master-port'", "port 0", "1 to 65535"],
            ),
            (
                |args| (args.nnodes, args.rdzv_endpoint) = (nnodes("2"), Some("host:0".to_owned())),
                &["'host:0' for '--rdzv-endpoint'", "port 0", "1 to 65535"],
            ),
        ];
        for (change, words) in cases {
            let text = topology(change).unwrap_err();
            assert_eq!(text.lines().count(), 1, "{text}");
            for word in words {
                assert!(text.contains(word), "`{word}` not in: {text}");
            }
        }
    }
}

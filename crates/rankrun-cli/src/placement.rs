//! Where and under which limits workers run: the arguments, and what they mean on this host. Not here: doing it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use rankrun::crates::process::{AllowedCpusError, CpuSet, LimitUnit, NumaTopology, gpu_numa_nodes};
use rankrun::crates::types::{escape_line, escape_os_str, ranges};
use rankrun::{Limit, NumaBinding, PerRank, Placement, Resource, Stdin};

use crate::values::{Typed, ranks_of};

/// The arguments about placement.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Placement and limits")]
pub(crate) struct PlacementArgs {
    /// Bind each worker to the CPUs near its GPU or its share of the host: node, socket, exclusive or core-complex
    #[arg(long, value_name = "BINDING", conflicts_with = "cpu_affinity")]
    pub(crate) numa_binding: Option<NumaBinding>,

    /// The CPUs of each worker: a list such as 0-3,8 for all, or one for each local rank, separated by ;
    #[arg(long, value_name = "LISTS")]
    pub(crate) cpu_affinity: Option<Typed<CpuLists>>,

    /// The workers' nice value, -20 to 19
    #[arg(long, value_name = "N", value_parser = parse_nice)]
    pub(crate) nice: Option<i32>,

    /// A resource limit of the workers: a number, seconds, or bytes (also with k, M, G or T, as in stack=16M), or unlimited;
    /// can be given more than once
    #[arg(long, value_name = "RESOURCE=SOFT[:HARD]", value_parser = parse_limit)]
    pub(crate) rlimit: Vec<(Resource, Limit, Limit)>,

    /// The permissions that the workers' files lack, octal
    #[arg(long, value_name = "MODE", value_parser = parse_umask)]
    pub(crate) umask: Option<u32>,

    /// The workers' working directory
    #[arg(long, alias = "wdir", alias = "workdir", value_name = "DIR")]
    pub(crate) chdir: Option<PathBuf>,

    /// The local rank that has rankrun's standard input; the others have an empty one
    #[arg(long, value_name = "RANK|none", default_value = "none", value_parser = parse_stdin)]
    pub(crate) stdin: StdinRank,
}

/// One list for all ranks, or one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuLists(Vec<CpuSet>);

impl FromStr for CpuLists {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let list = |text: &str| match text.trim().parse::<CpuSet>() {
            Ok(cpus) if cpus.is_empty() => Err("a list of CPUs is empty: expected one such as 0-3,8".to_owned()),
            Ok(cpus) => Ok(cpus),
            Err(error) => Err(error.to_string()),
        };
        text.split(';').map(list).collect::<Result<_, _>>().map(Self)
    }
}

/// Which rank has the standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StdinRank(Option<usize>);

/// Arguments about placement that do not fit the group.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlacementError {
    #[error(
        "invalid value '{}' for '--cpu-affinity': {got} lists for {expected} workers: expected one for all, or one for each",
        escape_line(.lists)
    )]
    CpuLists { lists: String, got: usize, expected: usize },
    #[error(
        "invalid value '{}' for '--cpu-affinity': rankrun may not use CPU {refused}: expected some of the CPUs that it may use: {allowed}",
        escape_line(.lists)
    )]
    Cpus { lists: String, refused: CpuSet, allowed: CpuSet },
    #[error("invalid value '{rank}' for '--stdin': there is no such rank: expected {}, or none", ranks_of(*size))]
    Stdin { rank: usize, size: usize },
}

/// What placement depends on beside the arguments.
pub(crate) struct Host<'a> {
    /// Where the kernel describes the hardware.
    pub(crate) sysfs: &'a Path,
    /// The CPUs that rankrun may use.
    pub(crate) allowed: &'a Result<CpuSet, AllowedCpusError>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) visible_gpus: Option<&'a str>,
}

/// What the arguments mean for each worker, and what could not be done about the CPUs.
pub(crate) fn resolve(
    args: &PlacementArgs,
    local_world_size: usize,
    host: &Host<'_>,
) -> Result<(PerRank<Placement>, Vec<String>), PlacementError> {
    if let (Some(lists), Ok(allowed)) = (&args.cpu_affinity, host.allowed) {
        // The kernel would leave them out without a word.
        let refused: CpuSet =
            lists.value.0.iter().flat_map(CpuSet::iter).filter(|cpu| !allowed.contains(*cpu)).collect();
        if !refused.is_empty() {
            return Err(PlacementError::Cpus { lists: lists.text.clone(), refused, allowed: allowed.clone() });
        }
    }
    let (cpus, warnings) = match (&args.cpu_affinity, args.numa_binding) {
        (Some(Typed { text, value: CpuLists(lists) }), _) => match lists.len() {
            1 => (PerRank::filled(local_world_size, Some(lists[0].clone())), Vec::new()),
            got if got == local_world_size => (lists.iter().cloned().map(Some).collect(), Vec::new()),
            got => {
                let lists = text.clone();
                return Err(PlacementError::CpuLists { lists, got, expected: local_world_size });
            }
        },
        (None, Some(binding)) => bind(binding, local_world_size, host),
        (None, None) => (PerRank::filled(local_world_size, None), Vec::new()),
    };
    if let Some(rank) = args.stdin.0.filter(|rank| *rank >= local_world_size) {
        return Err(PlacementError::Stdin { rank, size: local_world_size });
    }
    let placements = cpus.map(|local_rank, cpus| Placement {
        cpus: cpus.clone(),
        nice: args.nice,
        limits: args.rlimit.clone(),
        umask: args.umask,
        current_dir: args.chdir.clone(),
        stdin: if args.stdin.0 == Some(local_rank) { Stdin::Inherit } else { Stdin::Null },
    });
    Ok((placements, warnings))
}

/// The CPUs of each worker by the host's topology; where that cannot be had, none, and a warning.
fn bind(binding: NumaBinding, local_world_size: usize, host: &Host<'_>) -> (PerRank<Option<CpuSet>>, Vec<String>) {
    let unbound = |why: String| {
        (PerRank::filled(local_world_size, None), vec![format!("workers are not bound to CPUs ({binding}): {why}")])
    };
    let allowed = match host.allowed {
        Ok(allowed) => allowed,
        Err(error) => return unbound(error.to_string()),
    };
    let topology = match NumaTopology::read(host.sysfs, binding, allowed) {
        Ok(topology) => topology,
        Err(error) => return unbound(with_source(&error)),
    };
    let mut warnings = Vec::new();
    let gpus = gpu_numa_nodes(host.sysfs).unwrap_or_else(|error| {
        warnings.push(format!("the GPUs' places are not known: {}", with_source(&error)));
        Vec::new()
    });
    // Workers without a GPU of their own are spread over the host as if there were none.
    let gpus = visible(&gpus, host.visible_gpus).filter(|gpus| gpus.len() >= local_world_size);
    let mut cpus = Vec::new();
    for local_rank in 0..local_world_size {
        cpus.push(match topology.cpus(local_rank, local_world_size, gpus.as_deref()) {
            Ok(cpus) => Some(cpus),
            Err(error) => {
                warnings.push(format!("rank {local_rank} is not bound to CPUs ({binding}): {}", with_source(&error)));
                None
            }
        });
    }
    (PerRank::from_vec(cpus), warnings)
}

/// The nodes of the GPUs in the order in which `CUDA_VISIBLE_DEVICES` names them; `None` if there are none or it names
/// them in another way than by number.
fn visible(gpus: &[u32], visible_gpus: Option<&str>) -> Option<Vec<u32>> {
    match visible_gpus {
        _ if gpus.is_empty() => None,
        None => Some(gpus.to_vec()),
        Some(list) => list.split(',').map(|gpu| gpus.get(gpu.trim().parse::<usize>().ok()?).copied()).collect(),
    }
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn parse_limit(text: &str) -> Result<(Resource, Limit, Limit), String> {
    let (name, bounds) = text.split_once('=').ok_or("expected RESOURCE=SOFT or RESOURCE=SOFT:HARD")?;
    let resource: Resource =
        name.trim().parse().map_err(|error: rankrun::crates::process::ParseResourceError| error.to_string())?;
    let bound = |text: &str| parse_bound(resource, text.trim());
    match bounds.split_once(':') {
        Some((soft, hard)) => match (bound(soft)?, bound(hard)?) {
            // Infinity is the greatest.
            (soft, hard) if soft > hard => Err(format!("expected a soft limit of at most the hard one, {hard}")),
            (soft, hard) => Ok((resource, soft, hard)),
        },
        // One bound: soft and hard, as ulimit does.
        None => bound(bounds).map(|both| (resource, both, both)),
    }
}

/// A bound in the resource's unit; bytes may have one of their own, all of them powers of 1024.
fn parse_bound(resource: Resource, text: &str) -> Result<Limit, String> {
    let unit = resource.unit();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        _ if unit != LimitUnit::Bytes => None,
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    let limit = match shift {
        Some(shift) => {
            text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).map(Limit::Value)
        }
        None => text.parse().ok(),
    };
    let of = match unit {
        LimitUnit::Bytes => " of bytes, also with k, M, G or T (powers of 1024)",
        LimitUnit::Seconds => " of seconds",
        LimitUnit::Microseconds => " of microseconds",
        _ => "",
    };
    limit.ok_or_else(|| format!("in `{}`: expected a whole number{of}, or unlimited", escape_line(text)))
}

fn parse_nice(text: &str) -> Result<i32, String> {
    let nice = text.parse().ok().filter(|nice| (-20..=19).contains(nice));
    nice.ok_or_else(|| "expected a whole number from -20 to 19".to_owned())
}

fn parse_umask(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| digits && *mask <= 0o777);
    mask.ok_or_else(|| "expected an octal number from 0 to 777".to_owned())
}

fn parse_stdin(text: &str) -> Result<StdinRank, String> {
    match text {
        "none" => Ok(StdinRank(None)),
        rank => match rank.parse() {
            Ok(rank) => Ok(StdinRank(Some(rank))),
            Err(_) => Err("expected a local rank, from 0 to the number of workers less one, or none".to_owned()),
        },
    }
}

/// What a dry run says of them: equal ones once, and nothing of what workers have from rankrun.
pub(crate) fn describe(placements: &PerRank<Placement>) -> String {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (local_rank, placement) in placements.iter() {
        let text = lines(placement);
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(local_rank),
            None => groups.push((text, vec![local_rank])),
        }
    }
    let of_group = |(text, ranks): (String, Vec<usize>)| match text.is_empty() {
        true => String::new(),
        false => format!("placement of {}:\n{text}", ranges("local rank", ranks)),
    };
    groups.into_iter().map(of_group).collect()
}

fn lines(placement: &Placement) -> String {
    let Placement { cpus, nice, limits, umask, current_dir, stdin } = placement;
    let mut lines = Vec::new();
    lines.extend(cpus.as_ref().map(|cpus| format!("CPUs: {cpus}")));
    lines.extend(nice.map(|nice| format!("nice: {nice}")));
    lines.extend(limits.iter().map(|(resource, soft, hard)| format!("limit {resource}: {soft}, hard {hard}")));
    lines.extend(umask.map(|umask| format!("umask: {umask:03o}")));
    lines.extend(current_dir.as_ref().map(|dir| format!("working directory: {}", escape_os_str(dir.as_os_str()))));
    lines.extend((*stdin == Stdin::Inherit).then(|| "standard input: rankrun's".to_owned()));
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_was_chosen_and_of_equal_ranks_once() {
        let of = |cpus: &str| Placement { cpus: Some(cpus.parse().unwrap()), ..Placement::default() };
        let mut placements = PerRank::filled(4, Placement::default());
        assert_eq!(describe(&placements), "");
        (placements[0], placements[2], placements[3]) = (of("1-2"), of("1-2"), of("4"));
        placements[3].nice = Some(-5);
        placements[3].limits = vec![(Resource::Nofile, Limit::Value(100), Limit::Infinity)];
        (placements[3].umask, placements[3].current_dir) = (Some(0o22), Some("/data".into()));
        placements[3].stdin = Stdin::Inherit;
        assert_eq!(
            describe(&placements),
            "placement of local ranks 0,2:\n  CPUs: 1-2\nplacement of local rank 3:\n  CPUs: 4\n  nice: -5\n  limit nofile: 100, \
             hard unlimited\n  umask: 022\n  working directory: /data\n  standard input: rankrun's\n"
        );
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Places on a host with eight CPUs and nothing else.
    fn placed(args: &PlacementArgs, n: usize) -> Result<(PerRank<Placement>, Vec<String>), PlacementError> {
        let allowed = Ok((0..8).collect());
        resolve(args, n, &Host { sysfs: Path::new("/no/such/sysfs"), allowed: &allowed, visible_gpus: None })
    }

    #[test]
    fn one_list_is_for_all_and_several_are_one_for_each() {
        let args = |lists: &str| PlacementArgs { cpu_affinity: Some(lists.parse().unwrap()), ..Default::default() };
        let cpus = |lists, n| {
            let (placements, _) = placed(&args(lists), n)?;
            Ok::<_, PlacementError>(
                placements.map(|_, placement| placement.cpus.as_ref().unwrap().to_string()).into_values(),
            )
        };
        assert_eq!(cpus("0-1", 2).unwrap(), ["0-1", "0-1"]);
        assert_eq!(cpus("0;1,3", 2).unwrap(), ["0", "1,3"]);
        assert_eq!(
            cpus("0;1", 3).unwrap_err().to_string(),
            "invalid value '0;1' for '--cpu-affinity': 2 lists for 3 workers: expected one for all, or one for each"
        );
        for (lists, refused) in [("9999", "9999"), ("0,77", "77"), ("0;8,9", "8-9")] {
            assert_eq!(
                cpus(lists, 2).unwrap_err().to_string(),
                format!(
                    "invalid value '{lists}' for '--cpu-affinity': rankrun may not use CPU {refused}: expected some of the CPUs \
                     that it may use: 0-7"
                )
            );
        }
        for wrong in ["0;;1", "", "a"] {
            assert!(wrong.parse::<CpuLists>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_binding_that_cannot_be_done_is_a_warning_and_no_binding() {
        let args = PlacementArgs { numa_binding: Some(NumaBinding::Node), ..Default::default() };
        let (placements, warnings) = placed(&args, 2).unwrap();
        assert!(placements.values().iter().all(|placement| placement.cpus.is_none()));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("workers are not bound to CPUs (node): "), "{warnings:?}");
    }

    #[test]
    fn a_binding_goes_by_the_hosts_nodes_within_the_allowed_cpus() {
        let allowed = CpuSet::allowed().unwrap();
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "devices/system/node/node0/cpulist", &allowed.to_string());
        let args = PlacementArgs { numa_binding: Some(NumaBinding::Node), ..Default::default() };
        let host = Host { sysfs: root.path(), allowed: &Ok(allowed.clone()), visible_gpus: None };
        let (placements, warnings) = resolve(&args, 2, &host).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(placements.values().iter().all(|placement| placement.cpus.as_ref() == Some(&allowed)));
    }

    #[test]
    fn visible_gpus_reorder_and_what_is_no_number_is_not_guessed() {
        let gpus = [3, 3, 1, 1];
        assert_eq!(visible(&gpus, None), Some(vec![3, 3, 1, 1]));
        assert_eq!(visible(&gpus, Some("2, 0")), Some(vec![1, 3]));
        assert_eq!(visible(&gpus, Some("GPU-4711")), None);
        assert_eq!(visible(&gpus, Some("9")), None);
        assert_eq!(visible(&[], None), None);
    }

    #[test]
    fn limits_masks_and_ranks_are_read_or_refused() {
        assert_eq!(parse_limit("core=0"), Ok((Resource::Core, Limit::Value(0), Limit::Value(0))));
        assert_eq!(parse_limit("nofile=64:unlimited"), Ok((Resource::Nofile, Limit::Value(64), Limit::Infinity)));
        let bytes = |text| parse_limit(text).map(|(_, soft, hard)| (soft, hard));
        assert_eq!(bytes("stack=16M"), Ok((Limit::Value(16 << 20), Limit::Value(16 << 20))));
        assert_eq!(bytes("AS=512k:2GiB"), Ok((Limit::Value(512 << 10), Limit::Value(2 << 30))));
        assert_eq!(
            parse_limit("stack=1Q").unwrap_err(),
            "in `1Q`: expected a whole number of bytes, also with k, M, G or T (powers of 1024), or unlimited"
        );
        assert_eq!(
            parse_limit("cpu=1m").unwrap_err(),
            "in `1m`: expected a whole number of seconds, or unlimited",
            "it could be minutes"
        );
        for wrong in ["core=99999999T", "nofile=1k", "stack=M", "stack=-1M", "stack=1.5M"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
        for wrong in ["core", "cores=1", "core=", "core=1:", "core=-1", "nofile=10:5", "core=unlimited:0"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_umask("027"), Ok(0o27));
        for wrong in ["", "8", "1000", "-7", "+7"] {
            assert!(parse_umask(wrong).is_err(), "{wrong}");
        }
        let stdin = |rank| PlacementArgs { stdin: StdinRank(Some(rank)), ..Default::default() };
        assert!(placed(&stdin(2), 2).is_err());
        let (placements, _) = placed(&stdin(1), 2).unwrap();
        assert_eq!((placements[0].stdin, placements[1].stdin), (Stdin::Null, Stdin::Inherit));
        assert!(parse_stdin("all").is_err() && parse_stdin("-1").is_err());
    }
}

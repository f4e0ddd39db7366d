//! What is teed of a group, with which prefixes and filters: [`Tee`], from the spec. Not here: showing it
//! (`rankrun-logs`).

use std::ffi::OsStr;
use std::sync::Arc;

use rankrun_logs::{LinePrefix, LogHealth, LogsDest, PrefixTemplate, PrefixValues, SinkId, TailOptions, TailSource};
use rankrun_types::env;

use crate::spec::GroupSpec;
use crate::status::Counts;

/// Sources for a tail, and how it shows them.
pub(crate) struct Tee {
    pub(crate) sources: Vec<TailSource>,
    pub(crate) options: TailOptions,
    /// The sources whose prefixes wait for a worker's process id: source and local rank.
    pub(crate) await_pid: Vec<(usize, usize)>,
    /// There is something to show: sources, or a status.
    pub(crate) is_needed: bool,
}

impl Tee {
    pub(crate) fn new(spec: &GroupSpec, dest: &LogsDest, health: LogHealth, counts: &Arc<Counts>) -> Self {
        let prefixes = Prefixes::new(spec);
        let options = options(spec, dest).health(health);
        let options = match &spec.status_line {
            Some(line) => options.status_line(line.of(spec.local_world_size(), Arc::clone(counts))),
            None => options,
        };
        let is_needed = spec.status_line.is_some();
        let mut tee = Self { sources: Vec::new(), options, await_pid: Vec::new(), is_needed };
        for local_rank in 0..spec.local_world_size() {
            for (paths, sink) in [(&dest.tee_stdouts, SinkId::Stdout), (&dest.tee_stderrs, SinkId::Stderr)] {
                let Some(path) = &paths[local_rank] else { continue };
                let prefix = prefixes.of(local_rank, sink);
                if prefix.needs_pid() {
                    tee.await_pid.push((tee.sources.len(), local_rank));
                }
                tee.sources.push(TailSource { path: path.clone(), prefix, sink });
                tee.is_needed = true;
            }
        }
        tee
    }
}

/// The prefixes of a group's lines.
struct Prefixes<'a> {
    spec: &'a GroupSpec,
    template: PrefixTemplate,
    hostname: String,
}

impl<'a> Prefixes<'a> {
    fn new(spec: &'a GroupSpec) -> Self {
        Self { spec, template: spec.log_line_prefix_template.clone().unwrap_or_default(), hostname: hostname() }
    }

    fn of(&self, local_rank: usize, sink: SinkId) -> LinePrefix {
        if let Some(prefixes) = &self.spec.log_line_prefixes {
            return LinePrefix::from(prefixes[local_rank].clone()).color(local_rank);
        }
        let rank = self.spec.envs[local_rank].get(OsStr::new(env::RANK));
        let rank = rank.map_or_else(|| local_rank.to_string(), |rank| rank.to_string_lossy().into_owned());
        self.template.prefix(PrefixValues {
            role_name: &self.spec.name,
            local_rank,
            rank: &rank,
            hostname: &self.hostname,
            stream: &sink.to_string(),
        })
    }
}

/// The prefixes for who reads the files afterwards; none where they are the usual ones.
pub(crate) fn line_prefixes(spec: &GroupSpec) -> Vec<[String; 2]> {
    let template = spec.log_line_prefix_template.as_ref().filter(|template| **template != PrefixTemplate::default());
    if spec.log_line_prefixes.is_none() && template.is_none() {
        return Vec::new();
    }
    let prefixes = Prefixes::new(spec);
    let of = |local_rank| [SinkId::Stdout, SinkId::Stderr].map(|sink| prefixes.of(local_rank, sink).to_string());
    (0..spec.local_world_size()).map(of).collect()
}

fn options(spec: &GroupSpec, dest: &LogsDest) -> TailOptions {
    let mut options = TailOptions::new().progress(spec.progress).color(spec.color);
    for (sink, filter, file) in [
        (SinkId::Stdout, &spec.duplicate_stdout_filters, &dest.filtered_stdout),
        (SinkId::Stderr, &spec.duplicate_stderr_filters, &dest.filtered_stderr),
    ] {
        if let (Some(filter), Some(file)) = (filter, file) {
            options = options.filter(sink, file, filter.clone());
        }
    }
    options
}

/// This host's name; `localhost` where the kernel does not say.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rankrun_logs::{DefaultLogsSpecs, Env, LineFilter, LogsSpecs};
    use rankrun_redirects::{Std, StdSpec};
    use rankrun_types::PerRank;

    use super::*;
    use crate::spec::Entrypoint;

    fn tee(change: impl FnOnce(GroupSpec) -> GroupSpec) -> Tee {
        let dir = tempfile::tempdir().unwrap();
        let tee: StdSpec = "0:3,1:1".parse().unwrap();
        let logs = Arc::new(DefaultLogsSpecs::new(Some(dir.path().to_owned()), Std::NONE, tee));
        let envs =
            PerRank::from_fn(2, |local_rank| Env::from([(env::RANK.into(), (local_rank + 8).to_string().into())]));
        let dest = logs.reify(&envs).unwrap();
        let spec = GroupSpec::new("role", Entrypoint::binary("true"), PerRank::filled(2, Vec::new()), envs, logs);
        Tee::new(&change(spec.unwrap()), &dest, LogHealth::new(dir.path()), &Arc::default())
    }

    #[test]
    fn each_teed_stream_is_a_source_with_its_prefix() {
        let template: PrefixTemplate = "${role_name}/${rank}/${stream}".parse().unwrap();
        let tee = tee(|spec| spec.log_line_prefix_template(template));
        let expected = ["role/8/stdout", "role/8/stderr", "role/9/stdout"];
        let expected: Vec<LinePrefix> =
            expected.into_iter().zip([0, 0, 1]).map(|(text, rank)| LinePrefix::from(text).color(rank)).collect();
        assert_eq!(tee.sources.into_iter().map(|source| source.prefix).collect::<Vec<_>>(), expected);
        assert!(tee.await_pid.is_empty());
    }

    #[test]
    fn sources_whose_prefix_names_the_process_wait_for_it() {
        let tee = tee(|spec| spec.log_line_prefix_template("${pid}".parse().unwrap()));
        assert_eq!(tee.await_pid, [(0, 0), (1, 0), (2, 1)]);
    }

    #[test]
    fn filters_are_of_their_own_stream() {
        let tee = tee(|spec| spec.duplicate_stderr_filters(LineFilter::new(["loss"]).unwrap()));
        let options = format!("{:?}", tee.options);
        assert!(options.contains("filtered_stderr.log") && !options.contains("filtered_stdout.log"), "{options}");
    }
}

//! Terminals for the captured streams of a group: which, and how large: [`Terminals`]. Not here: moving what is written to
//! them (`rankrun_logs::WorkerTerminals`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rankrun_logs::{Env, LogHealth, LogsDest, LogsError, SinkId, TerminalSize, Unsaved, WorkerTerminals, open_log};
use rankrun_types::PerRank;

use crate::spec::GroupSpec;
use crate::tee::Tee;

/// What most terminals have, where there is none to ask.
const USUAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// No prefix makes a worker's terminal narrower.
const NARROWEST: u16 = 20;

/// The columns that a process id takes at most, pid_max(5).
const PID_COLUMNS: usize = 7;

/// What workers are told where nobody says which kind of terminal it is.
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// The terminals while the group runs.
#[derive(Debug)]
pub(crate) struct Terminals {
    ends: WorkerTerminals,
    /// Which one each rank's stdout and stderr have.
    of: PerRank<[Option<usize>; 2]>,
    /// How many columns each is narrower than the console.
    narrower: Vec<usize>,
    /// The terminal that a person looks at.
    console: Option<OwnedFd>,
    /// Until when the logs are drained, once that has begun.
    pub(crate) deadline: Option<Instant>,
}

impl Terminals {
    /// One for each captured stream, if the group is to have them.
    pub(crate) fn start(
        spec: &GroupSpec,
        dest: &LogsDest,
        tee: &Tee,
        health: &LogHealth,
    ) -> Result<Option<Self>, LogsError> {
        if !spec.pty {
            return Ok(None);
        }
        let mut paths: Vec<&Path> = Vec::new();
        let mut of = PerRank::filled(spec.local_world_size(), [None; 2]);
        for (local_rank, numbers) in of.iter_mut() {
            let captured = [&dest.stdouts, &dest.stderrs].map(|paths| paths[local_rank].as_deref());
            for (number, path) in numbers.iter_mut().zip(captured) {
                let Some(path) = path else { continue };
                // Nobody sees what goes to /dev/null. Two streams of one file keep their order in one terminal.
                if open_log(path)?.metadata().is_ok_and(|meta| meta.is_file()) {
                    let known = paths.iter().rposition(|known| *known == path);
                    *number = Some(known.unwrap_or(paths.len()));
                    if known.is_none() {
                        paths.push(path);
                    }
                }
            }
        }
        if paths.is_empty() {
            return Ok(None);
        }
        let console = console(spec);
        let full = full_size(console.as_ref(), |name| std::env::var_os(name));
        let width = prefix_width(tee);
        let narrower: Vec<usize> = paths
            .iter()
            .map(|path| if tee.sources.iter().any(|source| source.path == *path) { width } else { 0 })
            .collect();
        let sizes = narrower.iter().map(|columns| narrow(full, *columns));
        let logs = paths.iter().map(|path| path.to_path_buf()).zip(sizes).collect();
        let ends = WorkerTerminals::start(logs, health.clone())?;
        Ok(Some(Self { ends, of, narrower, console, deadline: None }))
    }

    /// What a worker gets for a stream; `None` where it has no terminal for it.
    pub(crate) fn worker_end(&self, local_rank: usize, stream: SinkId) -> Result<Option<OwnedFd>, LogsError> {
        let number = self.of[local_rank][usize::from(stream == SinkId::Stderr)];
        number.map(|number| self.ends.worker_end(number)).transpose()
    }

    /// Makes a worker's environment one of its terminal: `TERM` unless that is said, and not the size of another one,
    /// which programs would believe more than the terminal. `own` is what the worker was given beyond what we have.
    pub(crate) fn fit_env(&self, local_rank: usize, own: &Env, envs: &mut Env) {
        if self.of[local_rank].iter().all(Option::is_none) {
            return;
        }
        let (name, value) = TERM;
        if envs.get(OsStr::new(name)).is_none_or(|value| value.is_empty()) {
            envs.insert(name.into(), value.into());
        }
        for name in ["LINES", "COLUMNS"].map(OsStr::new) {
            if !own.contains_key(name) {
                envs.remove(name);
            }
        }
    }

    /// Follows the size of the terminal that a person looks at.
    pub(crate) fn follow_size(&self) {
        let Some(size) = self.console.as_ref().and_then(|console| TerminalSize::of(console.as_fd())) else { return };
        for (number, columns) in self.narrower.iter().enumerate() {
            self.ends.resize(number, narrow(size, *columns));
        }
    }

    /// Asks for what was written to be moved to the files, until `deadline` at most.
    pub(crate) fn finish(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
        self.ends.finish(deadline);
    }

    /// What went wrong, once they have come to their end.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.ends.wait(Instant::now()).unwrap_or_default()
    }

    pub(crate) fn unsaved(&self) -> Unsaved {
        self.ends.unsaved()
    }

    pub(crate) fn moved(&self) -> u64 {
        self.ends.moved()
    }
}

impl AsFd for Terminals {
    /// Readable once they have come to their end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }
}

/// The first terminal among where teed lines go and this program's standard input.
fn console(spec: &GroupSpec) -> Option<OwnedFd> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let shown = match &spec.consoles {
        Some(consoles) => [consoles.stdout.as_fd(), consoles.stderr.as_fd()],
        None => [stdout.as_fd(), stderr.as_fd()],
    };
    let all = shown.into_iter().chain([stdin.as_fd()]);
    all.into_iter().find(|fd| TerminalSize::of(*fd).is_some())?.try_clone_to_owned().ok()
}

/// The size of the console; without one, what `LINES` and `COLUMNS` say.
fn full_size(console: Option<&OwnedFd>, env: impl Fn(&str) -> Option<OsString>) -> TerminalSize {
    let said = |name| env(name)?.to_str()?.parse().ok().filter(|number: &u16| *number > 0);
    console.and_then(|console| TerminalSize::of(console.as_fd())).unwrap_or_else(|| TerminalSize {
        rows: said("LINES").unwrap_or(USUAL.rows),
        columns: said("COLUMNS").unwrap_or(USUAL.columns),
    })
}

/// The columns of the widest prefix, to which others are aligned on a terminal, and the last one, which stays free.
fn prefix_width(tee: &Tee) -> usize {
    let pid = |needed| if needed { PID_COLUMNS } else { 0 };
    let widths = tee.sources.iter().map(|source| source.prefix.width() + pid(source.prefix.needs_pid()));
    widths.max().map_or(0, |widest| widest + 1)
}

fn narrow(full: TerminalSize, by: usize) -> TerminalSize {
    let by = u16::try_from(by).unwrap_or(u16::MAX);
    TerminalSize { columns: full.columns.saturating_sub(by).max(NARROWEST.min(full.columns)), ..full }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_console_the_environment_says_the_size_and_then_the_usual_one_holds() {
        let size = |columns: &'static str| full_size(None, |name| (name == "COLUMNS").then(|| columns.into()));
        assert_eq!(size("132"), TerminalSize { rows: 24, columns: 132 });
        for wrong in ["", "0", "wide", "-1", "70000"] {
            assert_eq!(size(wrong), USUAL, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_takes_its_columns_but_not_all() {
        let columns = |full, by| narrow(TerminalSize { rows: 5, columns: full }, by).columns;
        assert_eq!((columns(80, 12), columns(80, 0), columns(30, 12)), (68, 80, 20));
        assert_eq!((columns(10, 12), columns(80, usize::MAX)), (10, 20));
    }
}

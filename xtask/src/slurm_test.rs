//! The command `slurm-test`: the tests that need Slurm, on a cluster that is there for them only.
//!
//! Here: whether Slurm is to be had, running the tests, and a signal meanwhile. Not here: the cluster (`slurm_cluster`), the
//! tests (`tests/tests/slurm_*.rs`).

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::run::{cargo, root};
use crate::slurm_cluster::{Cluster, Programs};

/// The tests' programs in `tests/tests`; each looks for [`CLUSTER`].
const TEST_PREFIX: &str = "slurm_";

/// Tells the tests that `SLURM_CONF` is a cluster of two nodes that is theirs.
const CLUSTER: &str = "RANKRUN_TEST_SLURM";

/// Sets the cluster up, runs the tests, and takes it down whatever became of them.
pub(crate) fn slurm_test(args: &[&str]) -> Result<(), String> {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(missing) => {
            println!("skipped: slurm-test: there is no {missing} (Debian's packages slurm-wlm and munge)");
            return Ok(());
        }
    };
    let tests = tests()?;
    // Before the cluster, so that it is not up while cargo builds.
    let mut build = vec!["test", "--package", "rankrun-tests", "--no-run"];
    build.extend(tests.iter().flat_map(|test| ["--test", test]));
    cargo(&build).pass_through()?;
    let interrupt = Interrupt::watch()?;
    let cluster = Cluster::start(&programs, &|| interrupt.check())?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(["test", "--package", "rankrun-tests"]);
    command.args(tests.iter().flat_map(|test| ["--test", test])).args(args);
    command.env(CLUSTER, "1").env("SLURM_CONF", cluster.config()).stdin(Stdio::null());
    let outcome = interrupt.run(command);
    if outcome.is_err() {
        eprintln!("{}", cluster.last_words());
    }
    cluster.stop()?;
    outcome
}

fn tests() -> Result<Vec<String>, String> {
    let directory = root().join("tests/tests");
    let entries = std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut tests: Vec<String> = entries
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter_map(|name| Some(name.file_stem()?.to_str()?.to_owned()))
        .filter(|name| name.starts_with(TEST_PREFIX))
        .collect();
    tests.sort();
    Ok(tests)
}

/// What SIGINT, SIGTERM and SIGHUP do here: end the program that runs, and so let the cluster be taken down.
struct Interrupt {
    caught: Arc<AtomicI32>,
    /// The process group of the program that runs; its leader is not reaped while it stands here.
    running: Arc<Mutex<Option<Pid>>>,
}

impl Interrupt {
    /// Takes these signals from now on.
    fn watch() -> Result<Self, String> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.map_err(|error| format!("signals cannot be watched: {error}"))?;
        let interrupt = Self { caught: Arc::default(), running: Arc::default() };
        let (caught, running) = (Arc::clone(&interrupt.caught), Arc::clone(&interrupt.running));
        std::thread::spawn(move || {
            for signal in &mut signals {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                caught.store(signal, Ordering::SeqCst);
                if let (Some(group), Ok(signal)) = (*running, Signal::try_from(signal)) {
                    // It may have ended just now.
                    let _ = killpg(group, signal);
                }
            }
        });
        Ok(interrupt)
    }

    fn check(&self) -> Result<(), String> {
        match self.caught.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                Err(format!("stopped by {}", Signal::try_from(signal).map_or("a signal", |signal| signal.as_str())))
            }
        }
    }

    /// Runs a program in a process group of its own, to its end or that of a signal to us.
    fn run(&self, mut command: Command) -> Result<(), String> {
        let shown = format!("{command:?}");
        let mut child = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            self.check()?;
            let child = command.process_group(0).spawn().map_err(|error| format!("{shown} does not start: {error}"))?;
            *running = Some(pid_of(&child));
            child
        };
        let ended = loop {
            match waitid(Id::Pid(pid_of(&child)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Err(nix::errno::Errno::EINTR) => {}
                ended => break ended,
            }
        };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ended.map_err(|errno| format!("{shown}: {errno}"))?;
        let status = child.wait().map_err(|error| format!("{shown}: {error}"))?;
        self.check()?;
        if status.success() { Ok(()) } else { Err(format!("the tests failed: {status}")) }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

//! Job steps on the Slurm of `cargo xtask slurm-test`: [`has_slurm`], [`slurm`], [`Slurm`]. Not here: that Slurm.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rankrun_testkit::{Launcher, Output, Running, binary, eventually, process_env};
use tempfile::TempDir;

use crate::LIMIT;

/// Set where `SLURM_CONF` is a cluster of two nodes for tests.
const CLUSTER: &str = "RANKRUN_TEST_SLURM";

/// Whether there is a Slurm for tests; if not, says in one line that `what` is skipped.
///
/// A Slurm that this machine may have is never used.
#[must_use]
pub fn has_slurm(what: &str) -> bool {
    let found = std::env::var_os(CLUSTER).is_some();
    if !found {
        eprintln!("skipped: {what}: there is no Slurm for tests: cargo xtask slurm-test");
    }
    found
}

/// A command of Slurm to its end.
///
/// # Panics
/// When it does not end with exit code 0.
#[track_caller]
pub fn slurm<A: AsRef<OsStr>>(command: &str, args: impl IntoIterator<Item = A>) -> Output {
    let output = Launcher::new(command).args(args).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{command}: {output}");
    output
}

/// A job on both nodes, as a test sees it, with a directory that the nodes share.
///
/// When it is dropped, no process of it may be left on any node.
#[derive(Debug)]
pub struct Slurm {
    running: Running,
    name: String,
    /// The id of a job that goes on without the command that handed it in.
    batch: Option<String>,
    shared: TempDir,
}

impl Slurm {
    /// Starts `srun`, with one task on each of the two nodes and these options, for a program and its arguments.
    ///
    /// In the program's arguments `{NAME}` is a file in the shared directory, and `{rankrun}` the program under test.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn srun(options: &[&str], program: &[&str]) -> Self {
        let mut args = vec!["--nodes=2", "--ntasks-per-node=1"];
        args.extend(options);
        Self::start("srun", &args, program)
    }

    /// Hands a job to `sbatch`: these options, then the script. Its output is in the file `output`.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn sbatch(options: &[&str], script: &[&str]) -> Self {
        let mut args = vec!["--parsable", "--output={output}", "--open-mode=append"];
        args.extend(options);
        let mut job = Self::start("sbatch", &args, script);
        let output = job.running.wait_timeout(LIMIT);
        assert_eq!(output.code, Some(0), "{output}");
        job.batch = Some(output.stdout_text().trim().to_owned());
        job
    }

    #[track_caller]
    fn start(command: &str, options: &[&str], program: &[&str]) -> Self {
        let shared = tempfile::tempdir().expect("a temporary directory that the nodes share");
        let put = |text: &&str| -> OsString { put(text, shared.path()).into() };
        let launcher = Launcher::new(command);
        let name = launcher.mark().to_owned();
        let launcher = launcher.args(["--job-name", &name]).args(options.iter().map(put)).args(program.iter().map(put));
        // So that what a step keeps is found again, and goes with the test.
        let launcher = launcher.env("TMPDIR", shared.path());
        Self { running: launcher.spawn(), name, batch: None, shared }
    }

    /// A file that the program's arguments call `{name}`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.shared.path().join(name)
    }

    /// What such a file holds; nothing if it is not there.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        std::fs::read(self.file(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until files are there.
    ///
    /// # Panics
    /// When they are not in time, or the command ends before.
    #[track_caller]
    pub fn wait_for_files(&mut self, names: &[&str]) {
        for name in names {
            let file = self.file(name);
            let found = rankrun_testkit::try_eventually(LIMIT, || file.exists() || self.has_ended());
            let said = [self.running.stdout(), self.running.stderr()].concat();
            assert!(
                found.is_some() && file.exists(),
                "no file {name}: {}{}",
                String::from_utf8_lossy(&said),
                self.text("output")
            );
        }
    }

    fn has_ended(&mut self) -> bool {
        self.batch.is_none() && self.running.has_ended()
    }

    /// Lets scancel do something with the job.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn scancel(&self, options: &[&str]) {
        slurm("scancel", options.iter().copied().chain(["--name", &self.name]));
    }

    /// Puts a job of [`sbatch`](Self::sbatch) back into the queue, and lets it run again at once.
    ///
    /// # Panics
    /// When Slurm refuses, or it does not end in time.
    #[track_caller]
    pub fn requeue(&self) {
        slurm("scontrol", ["requeue", self.id()]);
        self.run_again();
    }

    /// Waits until a job of [`sbatch`](Self::sbatch) is in the queue again, and lets it run at once.
    ///
    /// # Panics
    /// When that does not happen in time.
    #[track_caller]
    pub fn run_again(&self) {
        let id = self.id();
        let state = || slurm("squeue", ["--noheader", "--format=%t", "--job", id]).stdout_text();
        eventually("the job waits again", LIMIT, || state().trim() == "PD");
        // It would wait for minutes else; what it was started with before counts as revoked for a second.
        slurm("scontrol", ["update", &format!("JobId={id}"), "StartTime=now+2"]);
    }

    /// The id of a job of [`sbatch`](Self::sbatch).
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn id(&self) -> &str {
        self.batch.as_deref().expect("a batch job")
    }

    /// The values of a variable in the job's processes, on all nodes.
    #[must_use]
    pub fn values(&self, variable: &str) -> Vec<String> {
        let mut values: Vec<String> =
            self.running.processes().iter().filter_map(|found| process_env(found.pid, variable)).collect();
        values.sort();
        values.dedup();
        values
    }

    /// Waits for the job's end and gives its exit code, and what it wrote. From that moment nothing of it may be left.
    ///
    /// # Panics
    /// When it does not end in time, or something is left.
    #[track_caller]
    pub fn end(&mut self) -> Output {
        let mut output = self.running.wait_timeout(LIMIT);
        if let Some(id) = &self.batch {
            let job = || slurm("scontrol", ["show", "job", "--oneliner", id]).stdout_text();
            let field = |job: &str, name: &str| {
                job.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
            };
            let over = |state: String| !["PENDING", "RUNNING", "COMPLETING"].contains(&state.as_str());
            eventually("the job is over", LIMIT, || field(&job(), "JobState").is_some_and(over));
            // The code and the signal.
            let code = field(&job(), "ExitCode").unwrap_or_default();
            output.code = code.split_once(':').and_then(|(code, _)| code.parse().ok());
            output.stdout = self.text("output").into_bytes();
        }
        self.running.assert_nothing_left();
        output
    }
}

fn put(text: &str, shared: &Path) -> String {
    let rankrun = binary("rankrun-cli", "rankrun");
    let mut text = text.replace("{rankrun}", &rankrun.to_string_lossy());
    while let Some((name, after)) = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{{{name}}}{after}");
        text = text.replace(&format!("{{{name}}}"), &shared.join(name).to_string_lossy());
    }
    text
}

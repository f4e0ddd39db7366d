//! A group under test: [`Group`] runs rankrun and knows its workers, its guardian and the files by which workers say
//! how far they are. Not here: running a program and its mark (`rankrun-testkit`).

use std::ffi::OsString;
use std::path::PathBuf;

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun::{Signal, env};
use rankrun_testkit::{
    Launcher, Output, Process, Running, assert_no_process_left, children_of, eventually, process_env, process_state,
    processes_with_argument, processes_with_env, scripted_worker,
};
use tempfile::TempDir;

use crate::{LIMIT, Pidfds, control_groups_of};

/// The variable that a guardian alone has, with the group's cookie.
const GUARDIAN: &str = "RANKRUN_GUARDIAN";

/// A worker's script: words as of the testkit's `scripted-worker`, or a shell's text.
///
/// `{NAME}` in either is a file that the test and its processes share ([`Group::file`]); `{W}` is the scripted worker's
/// own program.
#[derive(Debug, Clone, Copy)]
pub enum Script<'a> {
    /// Words for the scripted worker, separated by blanks.
    Worker(&'a str),
    /// Text for `sh -c`.
    Shell(&'a str),
}

/// A script of words for the scripted worker.
#[must_use]
pub fn worker(words: &str) -> Script<'_> {
    Script::Worker(words)
}

/// Words by which the worker of each of `n` ranks creates the file `{prefix}RANK`; see [`Group::wait_for_each`].
#[must_use]
pub fn touch_by_rank(prefix: &str, n: usize) -> String {
    let words: Vec<String> = (0..n).map(|rank| format!("if-rank {rank} touch {{{prefix}{rank}}}")).collect();
    words.join(" ")
}

/// Sends a signal to a process, which the caller knows to be there.
///
/// # Panics
/// When it can't be sent.
#[track_caller]
pub fn signal_to(pid: i32, signal: NixSignal) {
    if let Err(errno) = kill(Pid::from_raw(pid), signal) {
        panic!("{signal} to pid {pid}: {errno}");
    }
}

/// A run of rankrun with a directory for files by which its processes and the test tell each other things.
///
/// When it is dropped no process with its mark or with one of its files in an argument may be left, and no guardian.
#[derive(Debug)]
pub struct Group {
    running: Running,
    cookie: Option<String>,
    /// Its path stands in arguments of processes which may have no environment.
    files: TempDir,
}

impl Group {
    /// Starts `n` workers of the script, with these arguments to rankrun.
    ///
    /// # Panics
    /// When rankrun can't be started.
    #[track_caller]
    #[must_use]
    pub fn start(pidfds: Pidfds, n: usize, args: &[&str], script: Script<'_>) -> Self {
        Self::start_as(pidfds.rankrun(), n, args, script)
    }

    /// As [`start`](Self::start), with what the launcher says already before rankrun's own arguments.
    ///
    /// # Panics
    /// When it can't be started.
    #[track_caller]
    #[must_use]
    pub fn start_as(launcher: Launcher, n: usize, args: &[&str], script: Script<'_>) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory for the group's files");
        let launcher = launcher.args(["-n", &n.to_string()]).args(args);
        let put = |text: &str| {
            let text = text.replace("{W}", &scripted_worker().to_string_lossy());
            // What else stands in braces without a blank is a file.
            let mut out = String::new();
            let mut rest = text.as_str();
            while let Some((before, after)) = rest.split_once('{') {
                out.push_str(before);
                match after.split_once('}') {
                    Some((name, after)) if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()) => {
                        out.push_str(&files.path().join(name).to_string_lossy());
                        rest = after;
                    }
                    _ => {
                        out.push('{');
                        rest = after;
                    }
                }
            }
            out + rest
        };
        let running = match script {
            Script::Worker(words) => launcher.arg(scripted_worker()).args(words.split_whitespace().map(put)).spawn(),
            Script::Shell(text) => launcher.args([OsString::from("sh"), "-c".into(), put(text).into()]).spawn(),
        };
        Self { running, cookie: None, files }
    }

    /// A file that scripts call `{name}`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Creates a file for which a worker waits.
    ///
    /// # Panics
    /// When that can't be done.
    pub fn touch(&self, name: &str) {
        std::fs::write(self.file(name), "").expect("a file of the group can be written");
    }

    /// Waits until workers have created these files.
    ///
    /// # Panics
    /// When they have not in time; the message shows what was written, and what runs.
    #[track_caller]
    pub fn wait_for_files(&mut self, names: &[&str]) {
        for name in names {
            let file = self.file(name);
            let found = rankrun_testkit::try_eventually(LIMIT, || file.exists() || self.running.has_ended());
            let text = String::from_utf8_lossy(&self.running.stderr()).into_owned();
            assert!(found.is_some() && file.exists(), "no file {name}; stderr: {text}");
        }
    }

    /// Waits until `{prefix}0` to `{prefix}n-1` are there.
    ///
    /// # Panics
    /// As [`wait_for_files`](Self::wait_for_files).
    #[track_caller]
    pub fn wait_for_each(&mut self, prefix: &str, n: usize) {
        for rank in 0..n {
            self.wait_for_files(&[&format!("{prefix}{rank}")]);
        }
    }

    /// The program that runs.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// rankrun's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Sends rankrun a signal.
    ///
    /// # Panics
    /// When that can't be done.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        self.running.signal(signal);
    }

    /// The cookie of the group; waits for the first worker.
    ///
    /// # Panics
    /// When there is none in time.
    #[track_caller]
    pub fn cookie(&mut self) -> String {
        if self.cookie.is_none() {
            let find = || self.running.processes().iter().find_map(|found| process_env(found.pid, env::RANKRUN_GROUP));
            self.cookie = Some(eventually("a worker with the group's cookie runs", LIMIT, find));
        }
        self.cookie.clone().unwrap_or_default()
    }

    /// The guardians of the group: one while it runs.
    ///
    /// # Panics
    /// As [`cookie`](Self::cookie).
    #[track_caller]
    pub fn guardians(&mut self) -> Vec<Process> {
        let cookie = self.cookie();
        processes_with_env(GUARDIAN, &cookie)
    }

    /// The workers that run: rankrun's children with the mark that lead their session.
    #[must_use]
    pub fn workers(&self) -> Vec<Process> {
        let mut found = self.running.processes();
        found.retain(|process| process.ppid == self.pid() && process.sid == process.pid);
        found
    }

    /// rankrun's children that have ended and were not reaped.
    #[must_use]
    pub fn zombies(&self) -> Vec<Process> {
        children_of(self.pid()).into_iter().filter(|child| child.state == 'Z').collect()
    }

    /// Waits until each of these processes is in this state as of [`Process::state`].
    ///
    /// # Panics
    /// When one is not in time.
    #[track_caller]
    pub fn wait_for_state(&self, pids: &[i32], state: char) {
        for pid in pids {
            eventually(&format!("pid {pid} is in state {state}"), LIMIT, || process_state(*pid) == Some(state));
        }
    }

    /// Waits for rankrun's end. From that moment nothing of the group may be left: neither by mark nor by argument, nor a
    /// guardian.
    ///
    /// # Panics
    /// When rankrun does not end in time, or something is left.
    #[track_caller]
    pub fn end(&mut self) -> Output {
        let output = self.running.wait_timeout(LIMIT);
        let left = self.left();
        assert!(left.is_empty(), "left when rankrun had ended: {left:#?}\n{output}");
        assert_eq!(control_groups_of(self.pid()), Vec::<PathBuf>::new(), "{output}");
        output
    }

    /// What lives of the group: by mark, by a file in an argument, or its guardian.
    #[must_use]
    pub fn left(&self) -> Vec<Process> {
        let mut left = self.running.processes();
        left.extend(self.left_by_argument());
        if let Some(cookie) = &self.cookie {
            left.extend(processes_with_env(GUARDIAN, cookie));
        }
        left
    }

    fn left_by_argument(&self) -> Vec<Process> {
        let mut left = processes_with_argument(&self.files.path().to_string_lossy());
        // rankrun has its workers' command line.
        left.retain(|process| process.pid != self.pid());
        left
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let left = self.left_by_argument();
        if !self.running.has_ended() && !std::thread::panicking() {
            // The mark's own check follows when the run is dropped.
            return;
        }
        for process in &left {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(process.pid), NixSignal::SIGKILL);
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "left behind: {left:#?}");
            assert_no_process_left(rankrun_testkit::MARK, self.running.mark());
            // Of a rankrun that was killed its guardian removes it.
            eventually("its control group is removed", LIMIT, || control_groups_of(self.pid()).is_empty());
        }
    }
}

//! The `rankrun` binary: `rankrun -n 4 true` end to end, its size, and whether it is idle while workers run.
//!
//! Measures the release binary that is there, in `RANKRUN_BIN` or beside this program; it builds none.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rankrun_benches::{
    BenchError, Limit, PlainProcess, PlainProgram, Scratch, Session, ThreadUse, Verdict, os, release_binary,
};
use rankrun_testkit::{children_of, eventually};

/// The first argument of this program as a bare launcher.
const AS_LAUNCHER: &str = "--as-launcher";

const WORKERS: usize = 4;
const ROUNDS: usize = 100;
const END_TO_END: Limit = Limit::Time(Duration::from_millis(10));
const MIB: u64 = 1 << 20;
const SIZE_LIMIT: u64 = 4 * MIB;

/// How long an idle launcher is watched, and what it may do meanwhile: nothing that comes back.
const WATCHED: Duration = Duration::from_secs(2);
const SWITCHES_LIMIT: u64 = 2;
const CPU_LIMIT: Duration = Duration::from_millis(1);

/// More than any program takes to start, even here.
const SOON: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|arg| arg == AS_LAUNCHER) {
        return match plain_loop() {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let title =
        "cli: the release binary\nA: rankrun -n 4 true, B: a program that does posix_spawn of 4 `true` and waitpid";
    Session::main(title, |session| {
        let Some(binary) = release_binary() else {
            session.value("rankrun", "skipped: no release binary", "-", Verdict::None);
            return Ok(());
        };
        println!("{}", binary.display());
        let bare = std::env::current_exe().map_err(os("find this program"))?;
        // Without --log-dir it makes a temporary directory, and removes it.
        let scratch = Scratch::new()?;
        // OMP_NUM_THREADS: else rankrun says in each run what it chose.
        let rankrun = || {
            let mut command = Command::new(&binary);
            command.env("TMPDIR", scratch.path()).env("OMP_NUM_THREADS", "1");
            run(command.args(["-n", &WORKERS.to_string(), "--no-python", "true"]))
        };
        session.compare("end to end", ROUNDS, END_TO_END, rankrun, || run(Command::new(&bare).arg(AS_LAUNCHER)))?;
        session.compare("end to end, B in this process", ROUNDS, END_TO_END, rankrun, plain_loop)?;
        size(session, &binary)?;
        idle(session, "idle", &binary, &["-n", "4", "sleep", "600"])?;
        idle(session, "idle, teed", &binary, &["-n", "4", "--tee", "3", "sleep", "600"])?;
        a_thousand(session, &binary)
    })
}

fn run(command: &mut Command) -> Result<Duration, BenchError> {
    command.stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(os(format!("{command:?}")))?;
    let time = start.elapsed();
    if status.success() { Ok(time) } else { Err(BenchError::Unexpected(format!("{command:?}: {status}"))) }
}

fn plain_loop() -> Result<Duration, BenchError> {
    let start = Instant::now();
    let program = PlainProgram::new(Path::new("/bin/true"), &[])?;
    let mut started: Vec<PlainProcess> = (0..WORKERS).map(|_| program.start()).collect::<Result<_, _>>()?;
    for process in &mut started {
        if process.wait()? != 0 {
            return Err(BenchError::Unexpected("loop: a `true` failed".to_owned()));
        }
    }
    Ok(start.elapsed())
}

fn size(session: &mut Session, binary: &Path) -> Result<(), BenchError> {
    if !session.selects("size") {
        return Ok(());
    }
    let bytes = std::fs::metadata(binary).map_err(os(binary.display().to_string()))?.len();
    let size = format!("{:.2} MiB", bytes as f64 / MIB as f64);
    session.value("size", &size, "< 4 MiB", Verdict::of(bytes < SIZE_LIMIT));
    Ok(())
}

/// A launcher that is ended when this is dropped.
struct Launcher(Child);

impl Launcher {
    /// Ends it as a user would, so that it ends its workers and takes its files away.
    fn stop(&mut self) -> Result<(), BenchError> {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).map_err(os(format!("kill {pid}")))?;
        self.0.wait().map_err(os(format!("wait for {pid}")))?;
        Ok(())
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // After `stop` both do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What 1,000 workers cost the launcher, which starts with the usual soft limit on open files.
fn a_thousand(session: &mut Session, binary: &Path) -> Result<(), BenchError> {
    let case = "1000 workers";
    if !session.selects(case) {
        return Ok(());
    }
    let logs = Scratch::new()?;
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -Sn 1024; exec \"$0\" --log-dir \"$1\" -n 1000 sleep 600"])
        .arg(binary)
        .arg(logs.path());
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut launcher = Launcher(command.spawn().map_err(os(format!("{command:?}")))?);
    let pid = launcher.0.id();
    settle(pid, 1000)?;
    let before = ThreadUse::of(pid)?;
    // sleep: this is the time in which nothing is to happen.
    std::thread::sleep(WATCHED);
    let used = ThreadUse::of(pid)?.since(before);
    let threads = rankrun_testkit::thread_count(pid as i32).unwrap_or(usize::MAX);
    let peak = rankrun_testkit::peak_memory_kib(pid as i32).unwrap_or(u64::MAX);
    launcher.stop()?;
    let value = format!("{threads} threads, {peak} KiB, {} switches in 2 s", used.switches);
    let kept = threads <= 3 && peak < 16 * 1024 && used.switches <= SWITCHES_LIMIT;
    session.value(case, &value, "3, 16 MiB, none", Verdict::of(kept));
    Ok(())
}

/// Waits until this many workers sleep and the launcher has nothing left to do after the start.
fn settle(pid: u32, workers: usize) -> Result<(), BenchError> {
    eventually("all workers sleep", SOON, || {
        let asleep = |process: &rankrun_testkit::Process| process.comm == "sleep" && process.state == 'S';
        children_of(pid as i32).iter().filter(|process| asleep(process)).count() == workers
    });
    let mut before = ThreadUse::of(pid)?;
    eventually("the launcher has settled", SOON, || -> bool {
        // sleep: two readings need time between them.
        std::thread::sleep(Duration::from_millis(50));
        let now = ThreadUse::of(pid).unwrap_or_default();
        std::mem::replace(&mut before, now) == now
    });
    Ok(())
}

/// Watches a launcher whose workers sleep.
fn idle(session: &mut Session, case: &str, binary: &Path, args: &[&str]) -> Result<(), BenchError> {
    if !session.selects(case) {
        return Ok(());
    }
    let logs = Scratch::new()?;
    let mut command = Command::new(binary);
    command.arg("--log-dir").arg(logs.path()).args(args);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut launcher = Launcher(command.spawn().map_err(os(format!("{command:?}")))?);
    let pid = launcher.0.id();
    settle(pid, WORKERS)?;
    let before = ThreadUse::of(pid)?;
    // sleep: this is the time in which nothing is to happen.
    std::thread::sleep(WATCHED);
    let used = ThreadUse::of(pid)?.since(before);
    launcher.stop()?;
    let value = format!("{} switches, {:.3} ms CPU", used.switches, used.cpu.as_secs_f64() * 1e3);
    let kept = used.switches <= SWITCHES_LIMIT && used.cpu < CPU_LIMIT;
    session.value(case, &value, "none in 2 s", Verdict::of(kept));
    Ok(())
}

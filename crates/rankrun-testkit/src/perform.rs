//! Doing what a script says: [`perform`]. Not here: reading the script ([`crate::script`]).

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd;
use rankrun_types::{Signal, env};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::script::{Instruction, Script};
use crate::{open_fds, try_eventually};

/// The worker's exit code when its arguments are no script (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: i32 = 64;
/// The worker's exit code when an instruction could not be done (`EX_SOFTWARE` of sysexits.h).
pub const EXIT_FAILED: i32 = 70;
/// The worker's exit code when its output could not be written (`EX_IOERR` of sysexits.h).
pub const EXIT_IO: i32 = 74;

const LONGEST_WAIT_FOR_FILE: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;

/// What the main script and the scripts of signals share.
#[derive(Default)]
struct Worker {
    children: Mutex<Vec<Child>>,
    memory: Mutex<Vec<Vec<u8>>>,
}

/// Does a script in this process, to the end of the process: exits with 0 after the last instruction.
///
/// For the `scripted-worker` program. What can't be done is said on stderr and ends it with [`EXIT_FAILED`] or [`EXIT_IO`].
pub fn perform(script: &Script) -> ! {
    Arc::new(Worker::default()).run(script);
    exit(0)
}

/// Line `number` of the instruction `lines`, without its newline: the number, a space, and dots up to `length` bytes.
///
/// Longer than `length` only where the number itself is.
///
/// ```
/// assert_eq!(rankrun_testkit::numbered_line(12, 6), "12 ...");
/// assert_eq!(rankrun_testkit::numbered_line(123, 2), "123");
/// ```
#[must_use]
pub fn numbered_line(number: u64, length: usize) -> String {
    let mut line = number.to_string();
    if line.len() < length {
        line.push(' ');
    }
    let dots = length.saturating_sub(line.len());
    line.extend(std::iter::repeat_n('.', dots));
    line
}

/// Ends the process at once. Each write was flushed, and a lock that another thread holds can't delay it.
fn exit(code: i32) -> ! {
    low_level::exit(code)
}

fn fail(code: i32, what: impl std::fmt::Display) -> ! {
    // Nobody is left to tell if this can't be written.
    let _ = writeln!(io::stderr(), "scripted-worker: {what}");
    exit(code)
}

fn write(stream: &mut dyn Write, bytes: &[u8]) {
    if let Err(error) = stream.write_all(bytes).and_then(|()| stream.flush()) {
        fail(EXIT_IO, format_args!("output: {error}"));
    }
}

fn print(line: impl std::fmt::Display) {
    write(&mut io::stdout().lock(), format!("{line}\n").as_bytes());
}

impl Worker {
    fn run(self: &Arc<Self>, script: &Script) {
        for instruction in &script.instructions {
            self.step(instruction);
        }
    }

    fn step(self: &Arc<Self>, instruction: &Instruction) {
        match instruction {
            Instruction::Out(bytes) => write(&mut io::stdout().lock(), bytes),
            Instruction::Err(bytes) => write(&mut io::stderr().lock(), bytes),
            Instruction::Lines { count, length } => lines(*count, *length),
            Instruction::Exit(code) => exit(i32::from(*code)),
            Instruction::Raise(signal) => raise(*signal),
            Instruction::Ignore(signal) => ignore(*signal),
            Instruction::On(signal, script) => self.on(*signal, script.clone()),
            Instruction::Hang => loop {
                thread::park();
            },
            // sleep: the instruction says so.
            Instruction::Sleep(time) => thread::sleep(*time),
            Instruction::Spin(time) => spin(*time),
            Instruction::Memory(mib) => {
                // Written byte by byte, so that each page is touched.
                let block = vec![1; mib * MIB];
                self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(block);
            }
            Instruction::Touch(file) => touch(file),
            Instruction::WaitFor(file) => wait_for(file),
            Instruction::Env(name) => match std::env::var_os(name) {
                Some(value) => print(value.to_string_lossy()),
                None => print("<unset>"),
            },
            Instruction::Cwd => match std::env::current_dir() {
                Ok(directory) => print(directory.display()),
                Err(error) => fail(EXIT_FAILED, format_args!("cwd: {error}")),
            },
            Instruction::Pids => pids(),
            Instruction::Fds => fds(),
            Instruction::Mask => mask(),
            Instruction::Spawn(script) => {
                let child = start(&script.words);
                self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
            }
            Instruction::Daemon(script) => daemon(script),
            Instruction::Setsid => {
                if let Err(errno) = unistd::setsid() {
                    fail(EXIT_FAILED, format_args!("setsid: {errno}"));
                }
            }
            Instruction::Wait => self.wait(),
            Instruction::IfRank(rank, script) => {
                if std::env::var(env::LOCAL_RANK).is_ok_and(|value| value == rank.to_string()) {
                    self.run(script);
                }
            }
            Instruction::Repeat(times, script) => (0..*times).for_each(|_| self.run(script)),
            Instruction::ErrorFile(json) => error_file(json),
        }
    }

    /// The handler stands when this returns; a thread does the script.
    fn on(self: &Arc<Self>, signal: Signal, script: Script) {
        let mut signals = match Signals::new([signal.as_raw()]) {
            Ok(signals) => signals,
            Err(error) => fail(EXIT_FAILED, format_args!("on {signal}: {error}")),
        };
        let worker = Arc::clone(self);
        thread::spawn(move || {
            for _ in &mut signals {
                worker.run(&script);
            }
        });
    }

    fn wait(&self) {
        let children = std::mem::take(&mut *self.children.lock().unwrap_or_else(PoisonError::into_inner));
        for mut child in children {
            if let Err(error) = child.wait() {
                fail(EXIT_FAILED, format_args!("wait: {error}"));
            }
        }
    }
}

fn lines(count: u64, length: usize) {
    let mut stdout = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    for number in 0..count {
        let mut line = numbered_line(number, length);
        line.push('\n');
        if let Err(error) = stdout.write_all(line.as_bytes()) {
            fail(EXIT_IO, format_args!("output: {error}"));
        }
    }
    write(&mut stdout, b"");
}

fn raise(signal: Signal) {
    // The runtime ignores or catches some signals; this puts the default action back first. It knows neither real-time
    // signals, which nobody has touched, nor tells the stop signals apart, whose action is the default one.
    let stops = [Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU].contains(&signal);
    let raised = if stops || low_level::signal_name(signal.as_raw()).is_none() {
        low_level::raise(signal.as_raw())
    } else {
        low_level::emulate_default_handler(signal.as_raw())
    };
    if let Err(error) = raised {
        fail(EXIT_FAILED, format_args!("raise {signal}: {error}"));
    }
}

fn ignore(signal: Signal) {
    if let Err(error) = signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false))) {
        fail(EXIT_FAILED, format_args!("ignore {signal}: {error}"));
    }
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn touch(file: &Path) {
    if let Err(error) = OpenOptions::new().create(true).append(true).open(file) {
        fail(EXIT_FAILED, format_args!("touch {}: {error}", file.display()));
    }
}

fn wait_for(file: &Path) {
    if try_eventually(LONGEST_WAIT_FOR_FILE, || file.exists()).is_none() {
        fail(EXIT_FAILED, format_args!("wait-for {}: not there", file.display()));
    }
}

fn pids() {
    let session = unistd::getsid(None).map_or(-1, unistd::Pid::as_raw);
    print(format_args!("{} {} {} {session}", unistd::getpid(), unistd::getppid(), unistd::getpgrp()));
}

fn fds() {
    let numbers: Vec<String> = open_fds(unistd::getpid().as_raw()).keys().map(i32::to_string).collect();
    print(numbers.join(" "));
}

fn mask() {
    let status = match fs::read_to_string("/proc/self/status") {
        Ok(status) => status,
        Err(error) => fail(EXIT_FAILED, format_args!("mask: {error}")),
    };
    let wanted = |line: &&str| ["SigBlk:", "SigIgn:", "SigCgt:"].iter().any(|name| line.starts_with(name));
    status.lines().filter(wanted).for_each(print);
}

fn start<W: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = W>) -> Child {
    let started = std::env::current_exe().and_then(|program| Command::new(program).args(words).spawn());
    match started {
        Ok(child) => child,
        Err(error) => fail(EXIT_FAILED, format_args!("spawn: {error}")),
    }
}

/// The middle process leads a session, starts the daemon and exits, so that the daemon's parent is whoever adopts it.
fn daemon(script: &Script) {
    let middle = ["setsid", "spawn", "["].into_iter().chain(script.words.iter().map(String::as_str)).chain(["]"]);
    match start(middle).wait() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(EXIT_FAILED, format_args!("daemon: {status}")),
        Err(error) => fail(EXIT_FAILED, format_args!("daemon: {error}")),
    }
}

fn error_file(json: &str) {
    let Some(file) = std::env::var_os(env::TORCHELASTIC_ERROR_FILE) else {
        fail(EXIT_FAILED, format_args!("error-file: {} is not set", env::TORCHELASTIC_ERROR_FILE));
    };
    if let Err(error) = fs::write(&file, json) {
        fail(EXIT_FAILED, format_args!("error-file {}: {error}", Path::new(&file).display()));
    }
}

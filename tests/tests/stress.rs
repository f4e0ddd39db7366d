//! Random jobs, killed at random moments, leave nothing.
//!
//! Some rounds in a plain test run; more by environment: `RANKRUN_STRESS_ROUNDS=500`, or `RANKRUN_STRESS_SECONDS=3600`.
//! The seed is printed; `RANKRUN_STRESS_SEED` takes it and gives the same jobs and moments (the machine's part of the
//! race is its own).

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun::Signal;
use rankrun_testkit::{Output, try_eventually};
use rankrun_tests::{Group, LIMIT, NO_CGROUP, Pidfds, Script, control_groups, control_groups_of};

const ROUNDS: u64 = 25;

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// What a worker starts before it goes on; each may have started or not when the end comes.
const LEAVES: &[&str] = &[
    "",
    "",
    "{W} hang &",
    "{W} ignore TERM touch {child} hang &",
    "{W} ignore TERM ignore INT spawn [ ignore TERM hang ] hang &",
    "setsid {W} ignore TERM touch {session} hang &",
    "{W} daemon [ ignore TERM touch {daemon} hang ] &",
    "{W} daemon [ daemon [ touch {twice} hang ] ] &",
    "env -i setsid {W} touch {bare} hang &",
    "{W} spawn stop stop &",
    "{W} repeat 5 daemon exit 3 &",
];

/// How a worker goes on.
const ENDS: &[&str] = &[
    "exit 0",
    "exit 0",
    "exit 7",
    "kill -KILL $$",
    "kill -SEGV $$",
    "kill -STOP $$",
    "sleep 0.02; exit 0",
    "sleep 0.05; exit 9",
    "exec sleep 600",
    "exec sleep 600",
    "exec {W} hang",
    "exec {W} ignore TERM ignore INT hang",
    "trap '' TERM; sleep 600",
];

/// What happens to the job from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Launcher(Signal),
    LauncherTwice(Signal, Signal),
    SomeWorker,
    Suspended,
}

impl Blow {
    fn kills_the_launcher(self) -> bool {
        matches!(self, Self::Launcher(Signal::KILL) | Self::LauncherTwice(_, Signal::KILL))
    }
}

const BLOWS: &[Blow] = &[
    Blow::Launcher(Signal::TERM),
    Blow::Launcher(Signal::INT),
    Blow::Launcher(Signal::KILL),
    Blow::Launcher(Signal::KILL),
    Blow::LauncherTwice(Signal::TERM, Signal::INT),
    Blow::LauncherTwice(Signal::TERM, Signal::KILL),
    Blow::SomeWorker,
    Blow::SomeWorker,
    Blow::Suspended,
];

#[test]
fn nothing_is_left_of_random_jobs_killed_at_random_moments() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let seed = number("RANKRUN_STRESS_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_nanos() & 0xffff_ffff_ffff).unwrap()
    });
    let seconds = number("RANKRUN_STRESS_SECONDS");
    let rounds = number("RANKRUN_STRESS_ROUNDS").unwrap_or(if seconds.is_some() { u64::MAX } else { ROUNDS });
    eprintln!("RANKRUN_STRESS_SEED={seed}");
    let start = Instant::now();
    let until = seconds.map(Duration::from_secs);
    let can_group = control_groups("control groups").is_some();
    let mut done = 0;
    while done < rounds && until.is_none_or(|until| start.elapsed() < until) {
        // Each round has its own numbers, so that one can be looked at alone.
        let mut random = Random((seed + done).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        round(&mut random, &format!("round {done} of seed {seed}"), can_group);
        done += 1;
    }
    eprintln!("{done} rounds in {:.1?}, nothing left", start.elapsed());
}

/// Runs one job and deals it one blow.
fn round(random: &mut Random, name: &str, can_group: bool) {
    let pidfds = random.one_of(&Pidfds::BOTH);
    let grouped = random.one_of(&[true, false]) && can_group;
    let n = 1 + random.below(6) as usize;
    let mut script = String::from("case $RANK in\n");
    for rank in 0..n {
        let (leaves, more, end) = (random.one_of(LEAVES), random.one_of(LEAVES), random.one_of(ENDS));
        script += &format!("{rank}) {leaves}\n {more}\n {end};;\n");
    }
    script += "esac";
    let order = random.one_of(&["leader-then-group", "group"]);
    let tee = random.one_of(&["0", "3"]);
    let blow = random.one_of(BLOWS);
    if blow.kills_the_launcher() && !grouped {
        // Nothing but the launcher, which had adopted it, or a control group can know whose that is.
        script = script.replace("env -i ", "");
    }
    let args = ["--shutdown-timeout", "0.1", "--stop-order", order, "-t", tee];
    let moment = Duration::from_micros(random.below(120_000));
    let second = Duration::from_micros(random.below(50_000));
    let what = format!(
        "{name}: {pidfds:?}, control group: {grouped}, -n {n} {args:?}, {blow:?} after {moment:?} and {second:?}\n{script}"
    );

    let launcher = pidfds.rankrun().env(NO_CGROUP, if grouped { "" } else { "1" });
    let mut group = Group::start_as(launcher, n, &args, Script::Shell(&script));
    // sleep: a random moment is what this is about.
    std::thread::sleep(moment);
    match blow {
        Blow::Launcher(signal) => group.signal(signal),
        Blow::LauncherTwice(first, then) => {
            group.signal(first);
            // sleep: as above.
            std::thread::sleep(second);
            if !group.running().has_ended() {
                group.signal(then);
            }
        }
        Blow::SomeWorker => {
            let workers = group.workers();
            if !workers.is_empty() {
                let worker = random.one_of(&workers.iter().map(|worker| worker.pid).collect::<Vec<_>>());
                // It may have ended just now.
                let _ = kill(Pid::from_raw(worker), NixSignal::SIGKILL);
            }
        }
        Blow::Suspended => {
            group.signal(Signal::TSTP);
            // Or the workers have ended, of a failure say, and rankrun with them.
            let pid = group.pid();
            let stopped = || rankrun_testkit::process_state(pid) == Some('T') || group.running().has_ended();
            try_eventually(LIMIT, stopped);
            // sleep: as above.
            std::thread::sleep(second);
            group.signal(Signal::TERM);
            group.signal(Signal::CONT);
        }
    }
    // A job that no blow has ended goes on for ever.
    if !matches!(blow, Blow::Launcher(_) | Blow::LauncherTwice(..)) && !ends_soon(&mut group) {
        group.signal(Signal::TERM);
    }
    let output = ended(&mut group, &what);
    let killed = output.signal.is_some();
    if killed {
        // The kernel and the guardian clean up after it.
        let no_group = || control_groups_of(group.pid()).is_empty();
        let gone = try_eventually(Duration::from_secs(5), || group.left().is_empty() && no_group());
        assert!(gone.is_some(), "{what}\nleft: {:#?}\n{output}", group.left());
    } else {
        let left = group.left();
        assert!(left.is_empty(), "{what}\nleft when rankrun had ended: {left:#?}\n{output}");
        assert!(control_groups_of(group.pid()).is_empty(), "{what}\n{output}");
    }
    let by_us = |signal: Signal| [Signal::TERM, Signal::INT, Signal::KILL, Signal::TSTP].contains(&signal);
    assert!(output.signal.is_none_or(by_us), "{what}\n{output}");
    assert!(!output.stderr_text().contains("panicked"), "{what}\n{output}");
    assert!(output.code != Some(125), "{what}\n{output}");
}

fn ends_soon(group: &mut Group) -> bool {
    try_eventually(Duration::from_millis(150), || group.running().has_ended()).is_some()
}

#[track_caller]
fn ended(group: &mut Group, what: &str) -> Output {
    let ended = try_eventually(LIMIT, || group.running().has_ended());
    assert!(ended.is_some(), "{what}\nstill runs: {:#?}", group.running().processes());
    group.running().wait_timeout(LIMIT)
}

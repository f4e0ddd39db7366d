//! Why a worker ended, as far as the system can tell. Not here: the texts for each exit (`rankrun-errors`).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rankrun_testkit::{Launcher, Output, scripted_worker};
use rankrun_tests::LIMIT;

/// A control group of version 1 that may hold 20 MiB; removed in the end.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make() -> Option<Self> {
        let path = Path::new("/sys/fs/cgroup/memory").join(format!("rankrun-test-{}", std::process::id()));
        let group = fs::create_dir(&path).is_ok().then(|| Self(path.clone()));
        let limited = group.is_some() && fs::write(path.join("memory.limit_in_bytes"), "20971520").is_ok();
        if !limited {
            eprintln!("skipped: a real kill for want of memory: no memory control group of version 1 can be made here");
        }
        group.filter(|_| limited)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn report(output: &Output, code: i32) -> String {
    assert_eq!(output.code, Some(code), "{output}");
    output.stderr_text()
}

#[test]
fn a_worker_that_the_kernel_killed_for_want_of_memory_is_said_to_have_been() {
    let Some(group) = MemoryGroup::make() else { return };
    let script = r#"echo $$ > "$GROUP/cgroup.procs" && exec "$@""#;
    let launcher = Launcher::new("sh").env("GROUP", &group.0).args(["-c", script, "sh"]);
    let launcher = launcher.arg(rankrun_testkit::binary("rankrun-cli", "rankrun")).args(["-n", "1"]);
    let output = launcher.arg(scripted_worker()).args(["memory", "64", "hang"]).run_with_timeout(LIMIT);
    let report = report(&output, 137);
    assert!(report.lines().next().unwrap().ends_with("signal 9 (SIGKILL): probably out of memory"), "{report}");
    let meaning =
        "probably out of memory: the kernel killed 1 process of this control group meanwhile (memory limit 20 MiB)";
    assert!(report.contains(&format!("meaning:    {meaning}\n")), "{report}");
}

/// Runs a worker that is killed with SIGKILL after a counter in a made-up file tree was set to 7.
fn killed_with_counter(counter: &str, before: &str, after: &str) -> String {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for dir in ["proc/self", "sys/fs/cgroup/job"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("proc/self/cgroup"), "0::/job\n").unwrap();
    fs::write(at("proc/self/mountinfo"), "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n").unwrap();
    fs::write(at("proc/vmstat"), "oom_kill 3\n").unwrap();
    fs::write(at("sys/fs/cgroup/job/memory.events"), "oom_kill 3\n").unwrap();
    fs::write(at(counter), before).unwrap();
    let script = r#"printf '%s' "$AFTER" > "$COUNTER"; kill -KILL $$"#;
    let launcher = Launcher::rankrun().env("RANKRUN_SYSTEM_ROOT", root.path());
    let launcher = launcher.env("COUNTER", at(counter)).env("AFTER", after).args(["-n", "1", "sh", "-c", script]);
    report(&launcher.run_with_timeout(LIMIT), 137)
}

#[test]
fn the_kernels_counters_tell_a_kill_for_want_of_memory_from_another() {
    let (group, host) = ("sys/fs/cgroup/job/memory.events", "proc/vmstat");
    for (counter, before, after, meaning) in [
        (
            group,
            "oom_kill 3\n",
            "oom_kill 5\n",
            "probably out of memory: the kernel killed 2 processes of this control group",
        ),
        (
            host,
            "oom_kill 3\n",
            "oom_kill 4\n",
            "probably out of memory: the kernel killed 1 process of this host meanwhile",
        ),
        (
            host,
            "oom_kill 3\n",
            "oom_kill 3\n",
            "killed, not for want of memory: by a person, a batch system or a daemon, or at a hard limit on CPU time",
        ),
    ] {
        let report = killed_with_counter(counter, before, after);
        assert!(report.contains(&format!("\n  meaning:    {meaning}")), "{report}");
    }
}

#[test]
fn the_last_words_of_a_rank_that_is_not_shown_are_told() {
    let script = "echo on the console; test $RANK = 1 || exec sleep 600; echo 'cannot open /dev/gpu1' >&2; exit 3";
    let launcher = Launcher::rankrun().args(["-n", "2", "--local-ranks-filter", "0", "sh", "-c", script]);
    let output = launcher.run_with_timeout(LIMIT);
    let report = report(&output, 3);
    assert_eq!(output.stdout_text(), "on the console\n");
    assert!(report.contains("exit code 3, last on stderr: cannot open /dev/gpu1\n"), "{report}");
    let logs = report.lines().find_map(|line| line.strip_prefix("  logs:       ")).unwrap();
    assert!(logs.ends_with("/attempt_0/1/stderr.log"), "{report}");
}

#[test]
fn a_core_dump_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let settings = root.path().join("proc/sys/kernel");
    fs::create_dir_all(&settings).unwrap();
    // The kernel's own pattern is not ours to change, so what it is taken for is.
    let kernel = |name: &str| fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap_or_default();
    for name in ["core_pattern", "core_uses_pid"] {
        fs::write(settings.join(name), kernel(name)).unwrap();
    }
    let launcher = Launcher::rankrun().current_dir(dir.path()).env("RANKRUN_SYSTEM_ROOT", root.path());
    let output = launcher.args(["-n", "1", "sh", "-c", "ulimit -c unlimited; kill -ABRT $$"]).run_with_timeout(LIMIT);
    let report = report(&output, 134);
    if !report.lines().next().unwrap().contains("core dumped") {
        eprintln!("skipped: where a core dump went: none is written here");
        return;
    }
    let said = report.lines().find_map(|line| line.strip_prefix("  core dump:  ")).unwrap();
    assert!(said.starts_with("given to ") || Path::new(said).exists(), "{report}");
}

#[test]
fn exit_codes_with_a_meaning_and_the_time_it_ran_are_told() {
    let output =
        Launcher::rankrun().args(["-n", "1", "sh", "-c", "sleep 0.2; no-such-program"]).run_with_timeout(LIMIT);
    let report = report(&output, 127);
    assert!(report.contains("\n  meaning:    a shell's code for: program not found\n"), "{report}");
    assert!(report.contains(" s of running\n"), "{report}");
}

#[test]
fn control_characters_of_workers_do_not_reach_the_terminal() {
    let script = r#"printf '\033[2J\033]0;title\007 bad \233' >&2; exit 3"#;
    let output = Launcher::rankrun().args(["-n", "1", "-r", "3", "sh", "-c", script]).run_with_timeout(LIMIT);
    let report = report(&output, 3);
    assert!(report.contains(r"\x1b[2J\x1b]0;title\x07 bad"), "{report}");
    assert!(!report.contains(|c: char| c.is_control() && c != '\n'), "{report:?}");
}

#[test]
fn the_report_has_colours_only_where_they_are_wanted() {
    let run = |args: &[&str]| {
        let launcher = Launcher::rankrun().env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").args(args);
        let output = launcher.args(["-n", "1", "sh", "-c", "exit 3"]).run_with_timeout(LIMIT);
        report(&output, 3)
    };
    assert!(run(&["--color", "always"]).starts_with("\u{1b}[1;31mdefault FAILED: rank 0 "));
    for args in [&["--color", "never"][..], &[]] {
        assert!(run(args).starts_with("default FAILED: rank 0 "), "{args:?}");
    }
}

#[test]
fn the_last_words_are_those_of_the_stream_that_is_kept_and_the_reason_that_a_stack_follows() {
    let script = "echo step 7; echo no GPU; exit 3";
    let launcher = || Launcher::rankrun().args(["-n", "1", "--color", "never"]);
    for captured in ["-r", "-t"] {
        let output = launcher().args([captured, "1", "sh", "-c", script]).run_with_timeout(LIMIT);
        let report = report(&output, 3);
        assert!(report.lines().any(|line| line.ends_with("exit code 3, last on stdout: no GPU")), "{report}");
        assert!(report.contains("\n  last lines of stdout:\n    step 7\n    no GPU\n"), "{report}");
    }
    let panics = "echo \"thread 'main' (7) panicked at src/main.rs:3:5:\"; echo no GPU; echo stack backtrace:
        for frame in $(seq 40); do echo \"  $frame: core::frame\"; done; echo 'note: Some details are omitted'; exit 101";
    let output = launcher().args(["-r", "3", "sh", "-c", &format!("({panics}) >&2")]).run_with_timeout(LIMIT);
    let report = report(&output, 101);
    let first = report.lines().next().unwrap();
    assert!(first.ends_with("exit code 101, last on stderr: panicked at src/main.rs:3:5: no GPU"), "{report}");
    assert!(report.contains(" lines left out ...\n") && report.lines().count() < 30, "{report}");
}

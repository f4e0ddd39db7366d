//! A start that runs out of descriptors, processes or room for an environment, or cannot do what one rank needs,
//! leaves nothing and says why in one line.

use std::path::PathBuf;

use rankrun::{Entrypoint, Placement, Std, WorkerGroup, start_processes};
use rankrun_testkit::{Launcher, MARK, Output, binary, processes_with_env, unique_id};
use rankrun_tests::{LIMIT, Pidfds, has, with_and_without_pidfds};

with_and_without_pidfds!(
    too_few_descriptors_for_the_workers,
    too_few_descriptors_for_the_log_files,
    too_few_descriptors_for_rankrun_itself,
    too_few_processes,
    a_rank_whose_environment_is_too_large,
);

const MANY: usize = 200;

/// Runs many workers after a shell command that takes something away.
fn run_after(pidfds: Pidfds, before: &str, args: &[&str]) -> Output {
    let script = format!("{before} && exec \"$0\" \"$@\"");
    let launcher = Launcher::new("sh").args(["-c", &script]).arg(binary("rankrun-cli", "rankrun"));
    let launcher = launcher.args(["-n", &MANY.to_string()]).args(args).args(["sleep", "600"]);
    let mark = launcher.mark().to_owned();
    // What rankrun says about threads is not what these look for.
    let launcher = launcher.env("OMP_NUM_THREADS", "1");
    let output = pidfds.apply(launcher).run_with_timeout(LIMIT);
    let left = processes_with_env(MARK, &mark);
    assert!(left.is_empty(), "{left:?}\n{output}");
    output
}

#[track_caller]
fn assert_one_clear_line(output: &Output, words: &[&str]) {
    let text = output.stderr_text();
    assert_eq!((output.code, text.lines().count()), (Some(125), 1), "{output}");
    for word in words {
        assert!(text.contains(word), "`{word}` not in: {text}");
    }
}

fn too_few_descriptors_for_the_workers(pidfds: Pidfds) {
    let output = run_after(pidfds, "ulimit -n 40", &[]);
    assert_one_clear_line(&output, &["local rank ", "Too many open files", "os error 24"]);
}

fn too_few_descriptors_for_the_log_files(pidfds: Pidfds) {
    let output = run_after(pidfds, "ulimit -n 40", &["-r", "3"]);
    assert_one_clear_line(&output, &["Too many open files", "(ulimit -n)"]);
    let output = run_after(pidfds, "ulimit -n 40", &["-t", "3"]);
    assert_one_clear_line(&output, &["Too many open files", "(ulimit -n)"]);
}

fn too_few_descriptors_for_rankrun_itself(pidfds: Pidfds) {
    for most in 6..=16 {
        let output = run_after(pidfds, &format!("ulimit -n {most}"), &[]);
        let text = output.stderr_text();
        let last = text.lines().last().unwrap_or_default();
        assert!(output.code == Some(125) && last.contains("(ulimit -n)"), "{most}: {output}");
    }
}

/// A place in the hierarchy of process limits, removed with the test.
struct PidsGroup(PathBuf);

impl PidsGroup {
    fn new(most: usize) -> Option<Self> {
        let dir = PathBuf::from("/sys/fs/cgroup/pids").join(unique_id("rankrun-test"));
        std::fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        std::fs::write(group.0.join("pids.max"), most.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        // Whether something is left in it is for the test to say.
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn too_few_processes(pidfds: Pidfds) {
    const MOST: usize = 30;
    let group = PidsGroup::new(MOST);
    let before = match &group {
        Some(group) => format!("echo $$ > {}/cgroup.procs", group.0.display()),
        None => {
            let root = ["sh", "-c", "test $(id -u) != 0"];
            if !has("too few processes", "no limit holds for root, and no pids cgroup can be made", &root) {
                return;
            }
            // The limit counts all of this user's threads, whatever else they do.
            let threads = std::fs::read_dir("/proc").expect("the tests need /proc").flatten();
            let threads: usize =
                threads.filter_map(|pid| Some(std::fs::read_dir(pid.path().join("task")).ok()?.count())).sum();
            format!("prlimit --pid $$ --nproc={}", threads + MOST)
        }
    };
    let output = run_after(pidfds, &before, &[]);
    assert_one_clear_line(&output, &["Resource temporarily unavailable", "os error 11"]);
}

fn a_rank_whose_environment_is_too_large(pidfds: Pidfds) {
    // One byte more than the kernel takes as one string.
    let most = 128 * 1024 - "ROLE_NAME=".len() - 1;
    let output =
        pidfds.rankrun().args(["-n", "3", "--role", &"x".repeat(most + 1), "sleep", "600"]).run_with_timeout(LIMIT);
    let text = output.stderr_text();
    assert_eq!((output.code, text.lines().count()), (Some(126), 1), "{text}");
    assert!(text.contains("local rank 0") && text.contains("ROLE_NAME"), "{text}");
}

/// A group of three of which the last rank cannot be started; the error's text.
#[track_caller]
fn refused(change: impl FnOnce(WorkerGroup) -> WorkerGroup) -> String {
    let mark = unique_id("refused");
    let group = WorkerGroup::new("g", Entrypoint::binary("sleep"), 3).args(["600"]).env(MARK, &mark);
    let error = start_processes(change(group)).expect_err("rank 2 cannot start").to_string();
    let left = processes_with_env(MARK, &mark);
    assert!(left.is_empty(), "{error}: {left:?}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn the_last_rank_of_a_group_in_a_program_has_too_large_an_environment() {
    let error = refused(|group| {
        group.envs_by_rank(|local_rank| {
            let large = if local_rank == 2 { "x".repeat(200_000) } else { String::new() };
            [("LARGE".to_owned(), large)]
        })
    });
    assert!(error.contains("local rank 2") && error.contains("LARGE (200007 bytes)"), "{error}");
    assert!(error.contains("Argument list too long"), "{error}");
}

#[test]
fn the_last_rank_of_a_group_in_a_program_has_no_working_directory() {
    let error = refused(|group| {
        group.placements(|local_rank| Placement {
            current_dir: (local_rank == 2).then(|| "/no/such/directory".into()),
            ..Placement::default()
        })
    });
    assert!(error.contains("local rank 2") && error.contains("No such file or directory"), "{error}");
}

#[test]
fn a_program_that_only_some_working_directories_have_is_missing_at_the_last_rank() {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        std::fs::create_dir(dir.path().join(rank.to_string())).unwrap();
        if rank < 2 {
            std::os::unix::fs::symlink("/bin/sleep", dir.path().join(format!("{rank}/job"))).unwrap();
        }
    }
    let mark = unique_id("missing");
    let group = WorkerGroup::new("g", Entrypoint::binary("./job"), 3).args(["600"]).env(MARK, &mark);
    let group = group.placements(|local_rank| Placement {
        current_dir: Some(dir.path().join(local_rank.to_string())),
        ..Placement::default()
    });
    let error = start_processes(group.redirects(Std::NONE)).expect_err("rank 2 has no program").to_string();
    assert!(processes_with_env(MARK, &mark).is_empty(), "{error}");
    assert!(error.contains("local rank 2") && error.contains("./job") && error.contains("exec"), "{error}");
}

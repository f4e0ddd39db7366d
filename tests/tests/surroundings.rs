//! Surroundings in which little is there: no environment, a cron job's, no standard streams, no working directory, no place
//! for temporary files. Not here: signals and terminals (`hangup`), PID 1 (`pid_one`).

use std::fs;
use std::path::Path;

use rankrun_testkit::{Launcher, Output, binary};
use rankrun_tests::{Group, LIMIT, Mounted, Script, has};

/// What stands before rankrun's own command line.
fn under(words: &[&str]) -> Launcher {
    let launcher = Launcher::new(words[0]).args(&words[1..]).arg(binary("rankrun-cli", "rankrun"));
    launcher.env("OMP_NUM_THREADS", "1")
}

/// Both ranks have a daemon; rank 1 fails and rank 0 would go on for ever.
const FAILING: &str = "setsid {W} on TERM [ touch {told} exit 0 ] touch {d} hang & \
                       until test -e {d}; do sleep 0.01; done; \
                       if [ $LOCAL_RANK = 1 ]; then echo failing >&2; exit 7; fi; exec sleep 600";

/// All of the run is as it is anywhere: its code, its files, and nothing left.
#[track_caller]
fn runs_under(words: &[&str]) {
    let logs = tempfile::tempdir().expect("a log directory");
    let path = logs.path().to_str().expect("a path that is text");
    let mut group = Group::start_as(under(words), 2, &["-t", "3", "--log-dir", path], Script::Shell(FAILING));
    let output = group.end();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(group.file("told").exists(), "the daemon was told: {output}");
    let run = logs.path().join("latest");
    let read = |name: &str| fs::read_to_string(run.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    // Without a working directory the shell has something to say of its own.
    assert!(read("attempt_0/1/stderr.log").ends_with("failing\n"));
    assert_eq!(read("attempt_0/0/stdout.log"), "");
    assert!(read("result.json").contains("\"FAILED\""), "{}", read("result.json"));

    let mut group = Group::start_as(under(words), 2, &["--log-dir", path], Script::Shell("exit 0"));
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
}

#[test]
fn an_empty_environment() {
    runs_under(&["env", "-i"]);
    // Programs are found without PATH where execvp(3) looks then.
    let output = under(&["env", "-i"]).args(["-n", "2", "sh", "-c", "echo $RANK"]).run_with_timeout(LIMIT);
    assert_eq!(
        (output.code, output.sorted_stdout_lines()),
        (Some(0), vec!["0".to_owned(), "1".to_owned()]),
        "{output}"
    );
    let said = output.stderr_text();
    assert!(said.lines().count() == 1 && said.contains("OMP_NUM_THREADS"), "{output}");
}

#[test]
fn a_cron_job() {
    let job = "cd / && exec \"$0\" \"$@\" <&-";
    runs_under(&["env", "-i", "PATH=/usr/bin:/bin", "SHELL=/bin/sh", "LOGNAME=root", "sh", "-c", job]);
}

#[test]
fn neither_home_nor_a_temporary_directory_in_the_environment() {
    runs_under(&["env", "-u", "HOME", "-u", "TMPDIR", "-u", "USER"]);
}

#[test]
fn no_standard_streams_at_all() {
    runs_under(&["sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]);
    // What is opened in the place of one does not become a worker's.
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!("for fd in 0 1 2; do readlink /proc/self/fd/$fd; done > {}", dir.path().join("fds").display());
    let output = under(&["sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]).args(["sh", "-c", &script]);
    assert_eq!(output.run_with_timeout(LIMIT).code, Some(0));
    let fds = fs::read_to_string(dir.path().join("fds")).expect("the worker wrote it");
    let fds: Vec<&str> = fds.lines().collect();
    assert_eq!((fds[0], fds[2]), ("/dev/null", "/dev/null"));
}

#[test]
fn the_root_as_working_directory() {
    runs_under(&["env", "-C", "/"]);
}

const IN_A_REMOVED_DIRECTORY: &str = "d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\" && exec \"$0\" \"$@\"";

#[test]
fn a_working_directory_that_was_removed() {
    runs_under(&["sh", "-c", IN_A_REMOVED_DIRECTORY]);
    let launcher = under(&["sh", "-c", IN_A_REMOVED_DIRECTORY]).args(["--log-dir", "logs", "true"]);
    let output = launcher.run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(2), "{output}");
    let said = output.stderr_text();
    assert!(
        said.contains("'--log-dir'") && said.contains("log directory logs") && said.contains("os error 2"),
        "{output}"
    );
}

/// Removes the temporary directory that this run has kept, and says where it was.
fn remove_kept(output: &Output) -> String {
    let said = output.stderr_text();
    let dir = said.lines().find_map(|line| line.strip_prefix("rankrun: run directory: "));
    let dir = Path::new(dir.unwrap_or_else(|| panic!("{output}"))).parent().expect("it has a parent");
    fs::remove_dir_all(dir).expect("it can be removed");
    dir.display().to_string()
}

#[test]
fn a_temporary_directory_that_takes_nothing_is_warned_of_and_another_used() {
    let Some(mounted) = Mounted::mount("tmpfs", "ro,size=1m") else { return };
    let missing = mounted.path().join("missing");
    for (tmpdir, why) in [(mounted.path(), "Read-only file system"), (&missing, "No such file")] {
        let launcher = Launcher::rankrun().env("TMPDIR", tmpdir).args(["-t", "3", "echo", "hi"]);
        let output = launcher.run_with_timeout(LIMIT);
        assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "[default0]:hi\n"), "{output}");
        let said = output.stderr_text();
        let warning = said.lines().find(|line| line.starts_with("rankrun: warning: ")).unwrap_or_default();
        assert!(warning.contains(why) && warning.contains(tmpdir.to_str().expect("text")), "{output}");
        let kept = remove_kept(&output);
        assert!(kept.starts_with("/tmp/rankrun_") && warning.ends_with(&kept), "{output}");
    }
}

#[test]
fn a_host_without_any_place_for_temporary_files_is_told_of_in_one_line() {
    let read_only = "for d in /tmp /var/tmp; do mount --rbind $d $d && mount -o remount,bind,ro $d || exit 99; done; \
                     cd /proc && exec \"$0\" \"$@\"";
    let check = ["unshare", "--mount", "sh", "-c", "mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp"];
    if !has("no place for temporary files", "mounting is not permitted", &check) {
        return;
    }
    let words = ["unshare", "--mount", "sh", "-c", read_only];
    let output = under(&words).env("TMPDIR", "/tmp").args(["echo", "started"]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(125), ""), "{output}");
    let said = output.stderr_text();
    assert_eq!(said.lines().count(), 1, "{output}");
    for words in ["/tmp, /var/tmp or /proc", "Read-only file system", "TMPDIR"] {
        assert!(said.contains(words), "`{words}` not in: {said}");
    }
    // With a place of its own it runs.
    let logs = Mounted::tmpfs();
    let Some(logs) = logs.as_ref().and_then(|logs| logs.path().to_str()) else { return };
    let output = under(&words).args(["--log-dir", logs, "echo", "started"]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "started\n"), "{output}");
}

#[test]
fn a_host_without_proc_is_told_of_in_one_line() {
    let words = ["unshare", "--mount", "sh", "-c", "umount -l /proc && exec \"$0\" \"$@\""];
    if !has("no /proc", "mounting is not permitted", &[&words[..], &["true"]].concat()) {
        return;
    }
    let output = under(&words).args(["echo", "started"]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(125), ""), "{output}");
    let said = output.stderr_text();
    assert!(said.lines().count() == 1 && said.ends_with("; /proc is not mounted\n"), "{output}");
}

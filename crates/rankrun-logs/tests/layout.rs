//! The directories that `DefaultLogsSpecs` makes, gives and removes.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail as the test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rankrun_logs::{DefaultLogsSpecs, Env, LogsError, LogsSpecs, RunInfo};
use rankrun_redirects::{Std, StdSpec};
use rankrun_types::PerRank;

fn envs(n: usize, run_id: &str, restart_count: &str) -> PerRank<Env> {
    let env = Env::from([
        ("TORCHELASTIC_RUN_ID".into(), run_id.into()),
        ("TORCHELASTIC_RESTART_COUNT".into(), restart_count.into()),
    ]);
    PerRank::filled(n, env)
}

fn specs(log_dir: &Path) -> DefaultLogsSpecs {
    DefaultLogsSpecs::new(Some(log_dir.to_owned()), Std::NONE, Std::ALL)
}

#[track_caller]
fn entries(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("entry").file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = fs::read_dir(dir).expect("directory").map(name).collect();
    names.sort();
    names
}

#[test]
fn the_layout_is_run_attempt_rank_and_only_directories_are_made() {
    let root = tempfile::tempdir().unwrap();
    let specs = specs(root.path());
    let dest = specs.reify(&envs(2, "job", "3")).unwrap();
    let run = specs.run_dir().unwrap();
    let name = run.file_name().unwrap();
    assert_eq!(entries(root.path()), [name.to_str().unwrap(), "latest"]);
    assert_eq!(fs::read_link(root.path().join("latest")).unwrap(), Path::new(name));
    assert!(run.file_name().unwrap().to_str().unwrap().starts_with("job_"));
    let attempt = run.join("attempt_3");
    assert_eq!((entries(&run), entries(&attempt)), (vec!["attempt_3".into()], vec!["0".into(), "1".into()]));
    assert_eq!(entries(&attempt.join("1")), Vec::<String>::new());
    assert_eq!(dest.stdouts[1], Some(attempt.join("1/stdout.log")));
    assert_eq!(dest.stderrs[0], Some(attempt.join("0/stderr.log")));
    assert_eq!((&dest.tee_stdouts, &dest.tee_stderrs), (&dest.stdouts, &dest.stderrs));
    assert_eq!(dest.error_files[1], attempt.join("1/error.json"));
    assert_eq!(dest.filtered_stdout, Some(attempt.join("filtered_stdout.log")));
    assert_eq!(dest.filtered_stderr, Some(attempt.join("filtered_stderr.log")));
    assert_eq!(dest.run_info, Some(run.join("run.json")));
    assert_eq!(specs.root_log_dir(), Some(root.path()));
    assert_eq!(specs.warnings(), [""; 0]);
}

#[test]
fn latest_points_to_the_newest_run_and_never_replaces_somebodys_own_file() {
    let root = tempfile::tempdir().unwrap();
    let target = || fs::read_link(root.path().join("latest")).unwrap();
    let first = specs(root.path());
    first.reify(&envs(1, "a", "0")).unwrap();
    let first_name = target();
    let second = specs(root.path());
    second.reify(&envs(1, "a", "0")).unwrap();
    assert_ne!(target(), first_name);
    assert_eq!(root.path().join(target()), second.run_dir().unwrap());
    // As a start that fails does: what was the newest before is so again.
    second.remove_run_dir().unwrap();
    assert_eq!(target(), first_name);

    fs::remove_file(root.path().join("latest")).unwrap();
    fs::write(root.path().join("latest"), "mine").unwrap();
    let third = specs(root.path());
    third.reify(&envs(1, "a", "0")).unwrap();
    assert_eq!(fs::read_to_string(root.path().join("latest")).unwrap(), "mine");
    let link = root.path().join("latest");
    let expected = format!("{} does not point to this run: it is there and is no link", link.display());
    assert_eq!(third.warnings(), [expected]);
}

#[test]
fn tee_implies_redirect_and_the_rest_inherits() {
    let root = tempfile::tempdir().unwrap();
    let tee = BTreeMap::from([(1, Std::ERR), (7, Std::ALL)]);
    let specs = DefaultLogsSpecs::new(Some(root.path().into()), BTreeMap::from([(0, Std::OUT)]), StdSpec::from(tee));
    let dest = specs.reify(&envs(3, "", "0")).unwrap();
    let some = |which: &PerRank<Option<PathBuf>>| which.map(|_, path| path.is_some()).into_values();
    assert_eq!(some(&dest.stdouts), [true, false, false]);
    assert_eq!(some(&dest.stderrs), [false, true, false]);
    assert_eq!(some(&dest.tee_stdouts), [false, false, false]);
    assert_eq!(some(&dest.tee_stderrs), [false, true, false]);
}

#[test]
fn a_rank_that_is_filtered_out_keeps_its_files_and_shows_nothing() {
    let root = tempfile::tempdir().unwrap();
    let specs =
        DefaultLogsSpecs::new(Some(root.path().into()), Std::NONE, Std::OUT).local_ranks_filter(BTreeSet::from([1]));
    let dest = specs.reify(&envs(2, "x", "0")).unwrap();
    assert!(dest.stdouts[0].as_ref().unwrap().ends_with("0/stdout.log"));
    assert!(dest.stderrs[0].as_ref().unwrap().ends_with("0/stderr.log"), "for the report of its failure");
    assert_eq!(dest.stderrs[1], None);
    assert_eq!(dest.tee_stdouts.values(), [None, dest.stdouts[1].clone()]);
}

#[test]
fn later_attempts_share_the_run_directory_and_a_second_run_has_its_own() {
    let root = tempfile::tempdir().unwrap();
    let specs = specs(root.path());
    specs.reify(&envs(1, "a", "0")).unwrap();
    let first = specs.run_dir().unwrap();
    let file = first.join("attempt_0/0/stdout.log");
    fs::write(&file, "kept").unwrap();
    specs.reify(&envs(1, "a", "1")).unwrap();
    assert_eq!(specs.run_dir().as_ref(), Some(&first));
    assert_eq!(entries(&first), ["attempt_0", "attempt_1"]);

    let again = specs.reify(&envs(1, "a", "1")).unwrap();
    let second = specs.run_dir().unwrap();
    assert_ne!(second, first);
    assert!(again.stdouts[0].as_ref().unwrap().starts_with(&second));
    specs.reify(&envs(1, "b", "2")).unwrap();
    assert!(specs.run_dir().unwrap().file_name().unwrap().to_str().unwrap().starts_with("b_"));
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn without_a_log_dir_a_private_one_is_made_and_removed_with_its_run() {
    let specs = DefaultLogsSpecs::new(None, Std::NONE, Std::NONE);
    assert_eq!((specs.root_log_dir(), specs.run_dir()), (None, None));
    let dest = specs.reify(&PerRank::filled(1, Env::new())).unwrap();
    assert_eq!((dest.stdouts[0].as_ref(), dest.stderrs[0].as_ref()), (None, None));
    let run = specs.run_dir().unwrap();
    let base = run.parent().unwrap();
    assert!(base.file_name().unwrap().to_str().unwrap().starts_with("rankrun_"));
    assert_eq!(fs::metadata(base).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(run.file_name().unwrap().to_str().unwrap().starts_with("none_"));
    fs::write(&dest.error_files[0], "{}").unwrap();
    specs.remove_run_dir().unwrap();
    assert!(!base.exists());
    specs.remove_run_dir().unwrap();
    assert_eq!(specs.run_dir(), None);
    // It can be used again.
    specs.reify(&PerRank::filled(1, Env::new())).unwrap();
    specs.remove_run_dir().unwrap();
}

#[test]
fn removing_a_run_leaves_what_was_there_before_and_what_others_put_there() {
    let root = tempfile::tempdir().unwrap();
    let existing = specs(root.path());
    existing.reify(&envs(1, "a", "0")).unwrap();
    existing.remove_run_dir().unwrap();
    assert_eq!(entries(root.path()), Vec::<String>::new());

    let deep = root.path().join("made/here");
    let ours = specs(&deep);
    ours.reify(&envs(1, "a", "0")).unwrap();
    fs::write(root.path().join("made/theirs"), "").unwrap();
    ours.remove_run_dir().unwrap();
    assert_eq!(entries(&root.path().join("made")), ["theirs"]);
}

#[test]
fn a_log_dir_that_is_a_file_is_an_error_with_its_path() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = specs(file.path()).reify(&envs(1, "a", "0")).unwrap_err();
    assert_eq!(error.to_string(), format!("log directory {} is not a directory", file.path().display()));
    let error = specs(&file.path().join("below")).reify(&envs(1, "a", "0")).unwrap_err();
    assert!(error.to_string().ends_with("/below: Not a directory (os error 20)"), "{error}");
}

#[test]
fn a_log_dir_that_cannot_be_written_to_is_an_error_with_its_number() {
    // Not even root can make a directory there.
    let error = specs(Path::new("/proc/self")).reify(&envs(1, "job", "0")).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogsError::Create { .. }));
    assert!(text.starts_with("cannot create log directory /proc/self/job_*: "), "{text}");
    assert!(text.ends_with(')') && text.contains("(os error "), "{text}");
}

#[test]
fn what_was_made_before_an_error_is_removed_again() {
    let root = tempfile::tempdir().unwrap();
    let too_long = root.path().join("a/b").join("n".repeat(300));
    let error = specs(&too_long).reify(&envs(1, "job", "0")).unwrap_err();
    assert!(error.to_string().ends_with("File name too long (os error 36)"), "{error}");
    assert_eq!(entries(root.path()), Vec::<String>::new());

    // The run directory just fits into PATH_MAX, the rank's does not.
    let mut deep = root.path().to_owned();
    let run_and_attempt = "/job_12345678/attempt_0".len();
    while deep.as_os_str().len() + run_and_attempt < 4095 {
        let left = 4095 - run_and_attempt - deep.as_os_str().len();
        deep.push("d".repeat((left - 1).clamp(1, 200)));
    }
    let error = specs(&deep).reify(&envs(1, "job", "0")).unwrap_err();
    assert!(error.to_string().ends_with("/attempt_0/0: File name too long (os error 36)"), "{error}");
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

#[test]
fn a_group_without_workers_and_a_restart_count_that_is_no_number_are_refused_and_make_nothing() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(specs(root.path()).reify(&envs(0, "a", "0")), Err(LogsError::NoWorkers)));
    for value in ["", "-1", "+1", "x", "99999999999999999999999"] {
        let error = specs(root.path()).reify(&envs(1, "a", value)).unwrap_err();
        let text = format!("rank 0: TORCHELASTIC_RESTART_COUNT is `{value}`: expected a number from 0");
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

#[test]
fn a_relative_log_dir_gives_absolute_paths() {
    let root = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(root.path().file_name().unwrap());
    let specs = specs(relative);
    let dest = specs.reify(&envs(1, "a", "0")).unwrap();
    assert!(dest.error_files[0].is_absolute());
    assert!(specs.run_dir().unwrap().is_dir());
}

#[test]
fn specs_are_usable_behind_a_trait_object_on_another_thread() {
    let root = tempfile::tempdir().unwrap();
    let specs: Box<dyn LogsSpecs> = Box::new(specs(root.path()));
    let dest = std::thread::spawn(move || specs.reify(&envs(1, "a", "0"))).join().unwrap().unwrap();
    assert!(dest.error_files[0].starts_with(root.path()));
}

#[test]
fn a_temporary_run_goes_when_it_is_dropped_but_for_what_holds_a_file() {
    let specs = DefaultLogsSpecs::new(None, Std::NONE, Std::NONE);
    let dest = specs.reify(&envs(2, "temporary", "0")).unwrap();
    drop(RunInfo::new("temporary", "default", 2).publish(dest.run_info.as_ref().unwrap()).unwrap());
    let run_dir = specs.run_dir().unwrap();
    drop(specs);
    assert!(!run_dir.parent().unwrap().exists(), "nothing was in it");

    let specs = DefaultLogsSpecs::new(None, Std::NONE, Std::NONE);
    let kept = specs.reify(&envs(2, "temporary", "0")).unwrap();
    std::fs::write(&kept.error_files[1], "{}").unwrap();
    let run_dir = specs.run_dir().unwrap();
    drop(specs);
    assert!(kept.error_files[1].exists());
    assert!(!kept.error_files[0].parent().unwrap().exists(), "empty");
    std::fs::remove_dir_all(run_dir.parent().unwrap()).unwrap();
    assert!(!dest.error_files[0].exists());

    let specs = DefaultLogsSpecs::new(None, Std::NONE, Std::NONE);
    specs.reify(&envs(1, "temporary", "0")).unwrap();
    specs.keep_run_dir();
    let run_dir = specs.run_dir().unwrap();
    drop(specs);
    assert!(run_dir.exists(), "kept on request");
    std::fs::remove_dir_all(run_dir.parent().unwrap()).unwrap();
}

#[test]
fn nodes_of_a_job_share_a_run_directory_and_each_attempt_gets_a_place_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let nodes = [0, 1].map(|node| specs(root.path()).node(node));
    for specs in &nodes {
        specs.reify(&envs(1, "job", "0")).unwrap();
        specs.reify(&envs(1, "job", "1")).unwrap();
    }
    assert_eq!(entries(root.path()), ["job", "latest"]);
    assert_eq!(fs::read_link(root.path().join("latest")).unwrap(), Path::new("job"));
    assert_eq!(entries(&root.path().join("job")), ["node_0", "node_1"]);
    let node = root.path().join("job/node_1");
    assert_eq!(
        (nodes[1].run_dir(), entries(&node)),
        (Some(node.clone()), vec!["attempt_0".into(), "attempt_1".into()])
    );
    // The engine starts the job again: whether or not it counts, nothing that is there is used again.
    for (count, attempt) in [("2", "attempt_2"), ("0", "attempt_3")] {
        let dest = specs(root.path()).node(1).reify(&envs(1, "job", count)).unwrap();
        assert_eq!(dest.error_files[0], node.join(attempt).join("0/error.json"));
        assert_eq!(dest.run_info, Some(node.join("run.json")));
    }
}

#[test]
fn of_a_shared_run_directory_only_the_own_attempts_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let before = specs(root.path()).node(0);
    before.reify(&envs(1, "job", "0")).unwrap();
    let again = specs(root.path()).node(0);
    again.reify(&envs(1, "job", "1")).unwrap();
    again.reify(&envs(1, "job", "2")).unwrap();
    let other = specs(root.path()).node(1);
    other.reify(&envs(1, "job", "0")).unwrap();
    again.remove_run_dir().unwrap();
    assert_eq!(again.run_dir(), None);
    assert_eq!(entries(&root.path().join("job/node_0")), ["attempt_0"]);
    before.remove_run_dir().unwrap();
    assert_eq!(entries(&root.path().join("job")), ["node_1"]);
    other.remove_run_dir().unwrap();
    assert_eq!(entries(root.path()), [""; 0]);
    // Without a log directory there is nothing to share.
    let own = DefaultLogsSpecs::new(None, Std::NONE, Std::NONE).node(1);
    own.reify(&envs(1, "job", "0")).unwrap();
    assert!(own.run_dir().unwrap().file_name().unwrap().to_str().unwrap().starts_with("job_"));
}

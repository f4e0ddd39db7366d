//! The exit codes of the command, each by a run that gives it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use rankrun_testkit::{Launcher, Output};
use rankrun_tests::{LIMIT, as_nobody};

fn run(args: &[&str]) -> Output {
    Launcher::rankrun().args(args).run_with_timeout(LIMIT)
}

#[test]
fn success_is_0() {
    let output = run(&["-n", "4", "true"]);
    assert_eq!((output.code, output.stdout_text().as_str(), output.stderr_text().as_str()), (Some(0), "", ""));
}

#[test]
fn a_failure_is_the_root_causes_code() {
    assert_eq!(run(&["-n", "2", "sh", "-c", "exit 3"]).code, Some(3));
    assert_eq!(run(&["sh", "-c", "exit 255"]).code, Some(255));
}

#[test]
fn a_worker_ended_by_a_signal_is_128_plus_its_number() {
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).code, Some(137));
    assert_eq!(run(&["sh", "-c", "kill -SEGV $$"]).code, Some(139));
    assert_eq!(run(&["sh", "-c", "kill -40 $$"]).code, Some(168));
}

#[test]
fn a_missing_program_is_127_and_named_with_rank_errno_and_step() {
    let output = run(&["-n", "4", "no-such-program"]);
    assert_eq!(output.code, Some(127));
    let expected =
        "rankrun: local rank 0: cannot start `no-such-program`: exec: No such file or directory (os error 2)\n";
    assert_eq!(output.stderr_text(), expected);
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    std::fs::write(&file, "not a program").unwrap();
    let output = run(&[file.to_str().unwrap()]);
    assert_eq!(output.code, Some(126));
    assert!(output.stderr_text().contains("Permission denied"), "{}", output.stderr_text());
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let output = run(&[file.to_str().unwrap()]);
    assert_eq!(output.code, Some(126), "no interpreter line: {}", output.stderr_text());
}

#[test]
fn wrong_usage_is_2_with_one_line_that_names_the_argument_and_what_is_accepted() {
    for (args, words) in [
        (&["-n", "0", "true"][..], &["-n", "'0'", "1 to 65536"][..]),
        (&["-n", "x", "true"], &["'x'", "1 to 65536"]),
        (&["-n", "4", "-r", "9:3", "true"], &["--redirects", "rank 9", "0-3"]),
        (&["-n", "4", "-t", "0:7", "true"], &["--tee", "byte 2"]),
        (&["--shutdown-timeout", "soon", "true"], &["--shutdown-timeout", "'soon'", "seconds"]),
        (&["--cpu-affinity", "9999", "true"], &["--cpu-affinity", "9999", "CPUs that it may use"]),
        (&["--cpu-affinity", "0,4077", "true"], &["--cpu-affinity", "CPU 4077"]),
        (&["--rlimit", "nofile=10:5", "true"], &["--rlimit", "nofile=10:5", "at most the hard one, 5"]),
        (&["--stdin", "-1", "true"], &["--stdin", "'-1'", "a local rank", "none"]),
        (&["--no-such-option", "true"], &["--no-such-option"]),
        (&["-n", "4"], &["PROGRAM"]),
    ] {
        let output = run(args);
        let text = output.stderr_text();
        assert_eq!(
            (output.code, text.lines().count(), output.stdout_text().as_str()),
            (Some(2), 1, ""),
            "{args:?}: {text}"
        );
        for word in words {
            assert!(text.contains(word), "{args:?}: `{word}` not in {text}");
        }
    }
}

#[test]
fn what_the_kernel_refuses_to_set_is_125_and_named() {
    let output = run(&["--rlimit", "nofile=99999999999", "true"]);
    let text = output.stderr_text();
    assert_eq!((output.code, text.lines().count()), (Some(125), 1), "{text}");
    for word in ["setrlimit nofile", "the hard limit of nofile is "] {
        assert!(text.contains(word), "`{word}` not in {text}");
    }
}

#[test]
fn help_and_version_are_0_and_go_to_standard_output() {
    let output = run(&["--help"]);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
    assert!(output.stdout_text().contains("--tee"));
    assert_eq!(run(&["--version"]).stdout_text(), format!("rankrun {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_place_that_an_argument_names_and_that_cannot_be_used_is_2_with_argument_value_and_what_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (file, dir_text) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    for (option, value, words) in [
        ("--log-dir", file, &[file, "not a directory", "where one can be made"][..]),
        ("--log-dir", "/proc/no/such/place", &["/proc/no", "os error 2", "where one can be made"]),
        ("--events", "/no/such/dir/x", &["os error 2", "a file that can be written"]),
        ("--events", dir_text, &["Is a directory", "a file that can be written"]),
        ("--chdir", "/no/such/dir", &["No such file", "a directory that workers may enter"]),
        ("--chdir", file, &["Not a directory", "a directory that workers may enter"]),
    ] {
        let launcher = Launcher::rankrun().args(["-n", "2", option, value, "echo", "ran"]);
        // What rankrun chose for a run that is none is not said, as far as that is known.
        let launcher = if option == "--log-dir" { launcher } else { launcher.env_remove("OMP_NUM_THREADS") };
        let output = launcher.run_with_timeout(LIMIT);
        let text = output.stderr_text();
        assert_eq!((output.code, output.stdout_text().as_str(), text.lines().count()), (Some(2), "", 1), "{text}");
        assert!(text.starts_with(&format!("rankrun: invalid value '{value}' for '{option}': ")), "{text}");
        for word in words {
            assert!(text.contains(word), "{option}: `{word}` not in {text}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was created");
}

#[test]
fn a_place_of_others_is_refused_with_the_argument_that_names_it() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let (shown, hidden) = (dir.path().join("shown"), dir.path().join("hidden"));
    for (place, mode) in [(&shown, 0o755), (&hidden, 0o700)] {
        std::fs::create_dir(place).unwrap();
        std::fs::set_permissions(place, Permissions::from_mode(mode)).unwrap();
    }
    for (option, place) in
        [("--log-dir", &shown), ("--log-dir", &hidden), ("--events", &shown.join("x")), ("--chdir", &hidden)]
    {
        let Some(launcher) = as_nobody("places of others", dir.path()) else { return };
        let output = launcher.arg(option).arg(place).arg("true").run_with_timeout(LIMIT);
        let text = output.stderr_text();
        assert_eq!((output.code, text.lines().count()), (Some(2), 1), "{output}");
        assert!(text.contains(&format!("for '{option}'")) && text.contains("Permission denied"), "{output}");
    }
}

#[test]
fn an_environment_too_large_is_126_and_names_the_rank_and_the_largest_variable() {
    // Just below what the kernel takes as one string; with its name before it, it is above.
    let output = run(&["-n", "2", "--role", &"x".repeat(131_065), "true"]);
    let text = output.stderr_text();
    assert_eq!((output.code, text.lines().count()), (Some(126), 1), "{text}");
    assert!(text.starts_with("rankrun: local rank 0: cannot start `true`: exec: Argument list too long"), "{text}");
    assert!(text.contains("ROLE_NAME (131076 bytes)"), "{text}");
}

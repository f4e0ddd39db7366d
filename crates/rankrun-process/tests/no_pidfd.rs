//! The spawn tests once more without pidfds: a thread waits for each process, and all else is the same.

#[path = "spawn.rs"]
mod spawn;

/// Runs the tests of a module of this file in a process of their own that believes there are no pidfds.
fn without_pidfds(module: &str) {
    let mut again = std::process::Command::new(std::env::current_exe().expect("this test program"));
    let output = again.arg(module).env("RANKRUN_NO_PIDFD", "1").output().expect("this test program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains(" 0 passed"), "{module}\n{text}");
}

#[test]
fn what_holds_with_pidfds_holds_without_them() {
    without_pidfds("spawn::");
}

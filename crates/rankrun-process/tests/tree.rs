//! Finding and ending what a worker started. One test, because a subreaper is a whole process, and it owns all children.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankrun_process::{Child, Command, ControlGroup, Member, Orphans, Spawner, Stdio, Tree, become_subreaper};
use rankrun_types::Signal;

/// Runs a worker whose script starts something in the background and then says so, and waits for both.
fn worker(cookie: &str, script: &str) -> Child {
    worker_in(cookie, script, None)
}

fn worker_in(cookie: &str, script: &str, group: Option<&ControlGroup>) -> Child {
    let (mut said, end) = std::io::pipe().unwrap();
    let path = std::env::var("PATH").unwrap();
    let command = Command::new("sh")
        .args(["-c", script])
        .envs([("RANKRUN_GROUP", format!("outer:{cookie}")), ("PATH", path)])
        .stdout(Stdio::Fd(end.into()));
    let mut spawner = Spawner::new().unwrap();
    let mut child = match group {
        Some(group) => spawner.spawn_into(command, group).unwrap(),
        None => spawner.spawn(command).unwrap(),
    };
    let mut byte = [0];
    said.read_exact(&mut byte).unwrap();
    child.wait().unwrap();
    child
}

fn names(members: &[Member]) -> Vec<String> {
    let mut names: Vec<String> = members.iter().map(|member| member.name().to_owned()).collect();
    names.sort();
    names
}

/// Waits until the tree is made of processes with these names.
fn assert_members(tree: &Tree, expected: &[&str]) {
    let start = Instant::now();
    loop {
        let names = names(&tree.members(&[]).unwrap());
        if names == expected {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{names:?}, expected {expected:?}");
        std::thread::yield_now();
    }
}

fn end_all(tree: &Tree) {
    let start = Instant::now();
    loop {
        let members = tree.members(&[]).unwrap();
        tree.reap_orphans(|_| false);
        if members.is_empty() {
            return;
        }
        for member in &members {
            member.signal(Signal::KILL);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "still there: {:?}", names(&members));
        std::thread::yield_now();
    }
}

/// Ends the one process whose environment has this.
fn end_the_one_with(variable: &str) {
    let has_it = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let found: Vec<String> = names.filter(|name| name.parse::<u32>().is_ok()).filter(has_it).collect();
    assert_eq!(found.len(), 1, "{variable}");
    assert!(std::process::Command::new("kill").args(["-KILL", &found[0]]).status().unwrap().success());
}

/// A process that left all else behind is found in the control group, also by who owns no orphans, and one kill ends it.
fn control_group_holds_what_hides(cookie: &str) {
    let Ok(group) = ControlGroup::new(cookie) else {
        eprintln!("skipped: no control group can be made here");
        return;
    };
    let group = Arc::new(group);
    let hide = "setsid env -i sh -c 'echo; sleep 600; :' &";
    for by_one_write in [false, true] {
        let mut tree = Tree::new(cookie, Orphans::Adopt);
        worker_in(cookie, hide, Some(&group));
        assert!(tree.members(&[]).unwrap().is_empty());
        tree.set_control_group(Arc::clone(&group));
        assert_members(&tree, &["sh", "sleep"]);
        assert_eq!(tree.is_left(), Some(true));
        if by_one_write {
            tree.kill_control_group();
        }
        end_all(&tree);
        let start = Instant::now();
        while table_has_zombie() {
            tree.reap_orphans(|_| false);
            assert!(start.elapsed() < Duration::from_secs(10), "a zombie of the group's is not reaped");
        }
    }
    assert!(group.remove() && !group.dir().exists());
}

/// Whether this program has a child that has ended: the only other one sleeps.
fn table_has_zombie() -> bool {
    let pid = std::process::id();
    let children = std::fs::read_dir("/proc/self/task").unwrap().flatten().flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let stat = |child: String| std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    children.map(stat).any(|stat| stat.contains(&format!(") Z {pid} ")))
}

#[test]
fn what_left_the_group_the_session_or_the_environment_is_found_and_nothing_else() {
    let cookie = format!("test-{}", std::process::id());
    let mut stranger = std::process::Command::new("sleep").arg("600").env("RANKRUN_GROUP", "another").spawn().unwrap();

    // A daemon with a session of its own is known by its cookie.
    let tree = Tree::new(&cookie, Orphans::Leave);
    worker(&cookie, "setsid sh -c 'echo; exec sleep 600' &");
    assert_members(&tree, &["sleep"]);
    assert_eq!(tree.is_left(), None, "without orphans nothing is sure");
    end_all(&tree);

    // But not one of a batch job that a worker submitted.
    let job = "export SLURM_JOB_ID=4242; setsid sh -c 'echo; exec sleep 600' &";
    let mut submitting = Tree::new(&cookie, Orphans::Leave);
    let child = worker(&cookie, job);
    assert!(submitting.members(&[]).unwrap().is_empty());
    submitting.add_worker(child.pid());
    assert!(submitting.members(&[]).unwrap().is_empty());
    end_the_one_with(&format!("RANKRUN_GROUP=outer:{cookie}"));

    // One without the environment is known by its session.
    let mut tree = Tree::new(&cookie, Orphans::Leave);
    let child = worker(&cookie, "env -i sh -c 'echo; exec sleep 600' &");
    assert!(tree.members(&[]).unwrap().is_empty());
    tree.add_worker(child.pid());
    assert_members(&tree, &["sleep"]);
    end_all(&tree);

    // One without either is known by whose child it has become, and so are its own children.
    become_subreaper().unwrap();
    let adopting = Tree::new(&cookie, Orphans::Adopt);
    let mut owning = Tree::new(&cookie, Orphans::Own);
    owning.add_stranger(stranger.id());
    worker(&cookie, "setsid env -i sh -c 'echo; sleep 600; :' &");
    assert_members(&owning, &["sh", "sleep"]);
    assert!(adopting.members(&[]).unwrap().is_empty(), "it could be somebody else's");
    assert_eq!(owning.is_left(), Some(true));
    end_all(&owning);
    assert_eq!(owning.is_left(), Some(false), "and the zombies of what was adopted are reaped");

    control_group_holds_what_hides(&cookie);
    assert!(stranger.try_wait().unwrap().is_none(), "a process of somebody else's is not touched");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

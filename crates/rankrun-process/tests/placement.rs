//! What a worker has of CPUs, nice value, limits and umask, seen by the worker itself. Real processes.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::fd::OwnedFd;

use rankrun_process::{Command, CpuSet, Limit, Resource, SpawnError, SpawnStep, Spawner, Stdio};
use rankrun_types::ExitKind;

fn shell(script: &str) -> Command {
    Command::new("/bin/sh").args(["-c", script]).envs([("PATH", "/usr/bin:/bin")])
}

/// Runs the command to its end and returns what it wrote.
fn output(command: Command) -> String {
    let (mut read_end, write_end) = std::io::pipe().unwrap();
    let command = command.stdout(Stdio::Fd(OwnedFd::from(write_end)));
    let mut child = Spawner::new().unwrap().spawn(command).unwrap();
    let mut text = String::new();
    read_end.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().kind, ExitKind::Code(0), "{text}");
    text.trim_end().to_owned()
}

fn refused(command: Command) -> SpawnError {
    Spawner::new().unwrap().spawn(command).unwrap_err()
}

const CPUS: &str = "grep Cpus_allowed_list /proc/self/status | cut -f2";

#[test]
fn a_worker_runs_on_the_cpus_it_was_given() {
    let allowed = CpuSet::allowed().unwrap();
    assert_eq!(output(shell(CPUS)), allowed.to_string());
    for cpu in allowed.iter() {
        assert_eq!(output(shell(CPUS).cpu_affinity(CpuSet::from_iter([cpu]))), cpu.to_string());
    }
    assert_eq!(CpuSet::allowed().unwrap(), allowed, "this thread's own are as before");
}

#[test]
fn cpus_that_do_not_exist_are_left_out_also_above_1024() {
    let first = CpuSet::allowed().unwrap().first().unwrap();
    let some = CpuSet::from_iter([first, 2_000, 9_000, u32::MAX]);
    assert_eq!(output(shell(CPUS).cpu_affinity(some)), first.to_string());
}

#[test]
fn no_cpu_that_exists_fails_at_its_own_step() {
    for cpus in ["", "9000"] {
        let error = refused(shell("true").cpu_affinity(cpus.parse().unwrap()));
        assert_eq!((error.step(), error.errno()), (Some(SpawnStep::Affinity), Some(22)), "{cpus}");
        let text = "cannot start `/bin/sh`: sched_setaffinity: Invalid argument (os error 22)";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_nice_value_is_absolute_and_the_workers_alone() {
    let ours = output(shell("nice"));
    assert_eq!(output(shell("nice").nice(7)), "7");
    assert_eq!(output(shell("nice").nice(19)), "19");
    assert_eq!(output(shell("nice")), ours);
}

#[test]
fn without_privilege_a_step_that_is_refused_names_itself() {
    // A thread's capabilities are its own, and its children's: this one gives up what would allow both.
    let refusals = std::thread::spawn(|| {
        give_up_capabilities();
        let above = refused(shell("true").limit(Resource::Nofile, 64, nofile_hard() + 1));
        // Where the system's limit allows a lower nice value, there is nothing to be refused.
        let (soft, _) = Resource::Nice.get().unwrap();
        (above, (soft < Limit::Value(25)).then(|| refused(shell("true").nice(-5))))
    });
    let (above, nicer) = refusals.join().unwrap();
    assert_eq!((above.step(), above.errno()), (Some(SpawnStep::Limit(Resource::Nofile)), Some(1)));
    assert_eq!(above.to_string(), "cannot start `/bin/sh`: setrlimit nofile: Operation not permitted (os error 1)");
    if let Some(nicer) = nicer {
        assert_eq!((nicer.step(), nicer.errno()), (Some(SpawnStep::Nice), Some(13)));
        assert_eq!(nicer.to_string(), "cannot start `/bin/sh`: setpriority: Permission denied (os error 13)");
    }
}

fn nofile_hard() -> u64 {
    match Resource::Nofile.get().unwrap().1 {
        Limit::Value(value) => value,
        Limit::Infinity => unreachable!("the kernel has an upper bound for open files"),
    }
}

/// Takes all capabilities from the calling thread.
fn give_up_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let (header, none) = (Header { version: VERSION_3, pid: 0 }, [0_u32; 6]);
    // SAFETY: the header is of the version whose data is two times three words, which `none` has.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn limits_are_the_workers_alone_soft_and_hard() {
    let ours = Resource::Nofile.get().unwrap();
    let command = shell("ulimit -Sn; ulimit -Hn; ulimit -c; ulimit -Ss")
        .limit(Resource::Nofile, 5, 9)
        .limit(Resource::Nofile, 64, 128)
        .limit(Resource::Core, 0, 0)
        .limit(Resource::Stack, 4 << 20, Resource::Stack.get().unwrap().1);
    assert_eq!(output(command), "64\n128\n0\n4096");
    assert_eq!(Resource::Nofile.get().unwrap(), ours);
}

#[test]
fn the_lowest_limit_on_open_files_does_not_hamper_the_start() {
    // None at all: not even the standard streams could be put in place after it.
    let command = shell("ulimit -n").limit(Resource::Nofile, 0, 0);
    // The program starts; its own loader may then fail to open its libraries.
    let mut child = Spawner::new().unwrap().spawn(command).unwrap();
    assert!(matches!(child.wait().unwrap().kind, ExitKind::Code(0 | 127)));
    assert_eq!(output(shell("ulimit -n").limit(Resource::Nofile, 4, 4)), "4");
}

#[test]
fn a_cpu_time_limit_ends_the_worker_with_its_signal() {
    let command = shell("while :; do :; done").limit(Resource::Cpu, 1, 2);
    let mut child = Spawner::new().unwrap().spawn(command).unwrap();
    assert_eq!(child.wait().unwrap().kind.signal(), Some(rankrun_types::Signal::XCPU));
}

#[test]
fn a_umask_is_the_workers_alone() {
    let ours = output(shell("umask"));
    assert_eq!(output(shell("umask").umask(0o027)), "0027");
    assert_eq!(output(shell("umask").umask(0)), "0000");
    assert_eq!(output(shell("umask")), ours);
}

#[test]
fn all_of_it_together() {
    let cpu = CpuSet::allowed().unwrap().first().unwrap();
    let command = shell(&format!("{CPUS}; nice; ulimit -n; umask"))
        .cpu_affinity(CpuSet::from_iter([cpu]))
        .nice(10)
        .limit(Resource::Nofile, 99, 99)
        .umask(0o077);
    assert_eq!(output(command), format!("{cpu}\n10\n99\n0077"));
}

#[test]
fn a_value_out_of_range_makes_no_process() {
    for command in [
        shell("true").nice(20),
        shell("true").umask(0o1000),
        shell("true").limit(Resource::Nofile, Limit::Infinity, 10),
    ] {
        let error = refused(command);
        assert!(matches!(error, SpawnError::OutOfRange { .. }), "{error}");
        assert_eq!((error.step(), error.errno()), (None, None));
    }
}

//! A Slurm cluster of two nodes on this machine, in a directory of its own: [`Cluster`]. Not here: what runs on it.
//!
//! All that it has is in that directory, sockets and keys included, and its ports are free ones on the loopback address:
//! so it neither needs nor touches a Slurm or a MUNGE that this machine may have, and runs as any user. The daemons are
//! held as children that are not reaped, so that nobody else can be hit when they are ended, and end with this program.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

/// How long daemons may take to start.
const START: Duration = Duration::from_secs(30);

/// How long a daemon may take to end.
const END: Duration = Duration::from_secs(10);

/// How long jobs have from SIGTERM to SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(8);

/// How often is looked at what nobody tells.
const LOOK: Duration = Duration::from_millis(20);

/// The nodes' names; neither resolves.
pub(crate) const NODES: [&str; 2] = ["n1", "n2"];

/// Where the programs are.
pub(crate) struct Programs {
    munged: PathBuf,
    slurmctld: PathBuf,
    slurmd: PathBuf,
    sinfo: PathBuf,
    squeue: PathBuf,
    scancel: PathBuf,
    /// Starts a daemon that ends with us.
    setpriv: PathBuf,
}

impl Programs {
    /// Looks for all; the name of one that is missing.
    pub(crate) fn find() -> Result<Self, &'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> =
            std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
        let find =
            |name: &'static str| places.iter().map(|place| place.join(name)).find(|file| file.is_file()).ok_or(name);
        // The tests use these.
        for name in ["srun", "sbatch", "scontrol"] {
            find(name)?;
        }
        Ok(Self {
            munged: find("munged")?,
            slurmctld: find("slurmctld")?,
            slurmd: find("slurmd")?,
            sinfo: find("sinfo")?,
            squeue: find("squeue")?,
            scancel: find("scancel")?,
            setpriv: find("setpriv")?,
        })
    }
}

/// The cluster; dropping it takes it down.
pub(crate) struct Cluster<'a> {
    programs: &'a Programs,
    /// In the order of their start.
    daemons: Vec<Daemon>,
    config: PathBuf,
    user: String,
    /// Removed last.
    directory: TempDir,
}

struct Daemon {
    name: String,
    child: Child,
}

impl<'a> Cluster<'a> {
    /// Starts it and waits until both nodes take jobs. `go_on` is asked meanwhile whether to.
    pub(crate) fn start(programs: &'a Programs, go_on: &dyn Fn() -> Result<(), String>) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("rankrun_slurm_").tempdir().map_err(|e| e.to_string())?;
        let user = User::from_uid(Uid::current()).ok().flatten().ok_or("this user has no name")?.name;
        let config = directory.path().join("slurm.conf");
        let mut cluster = Self { programs, daemons: Vec::new(), config, user, directory };
        let outcome = cluster.bring_up(go_on);
        match outcome {
            Ok(()) => Ok(cluster),
            Err(why) => {
                let said = cluster.last_words();
                Err(format!("the Slurm cluster does not start: {why}\n{said}"))
            }
        }
    }

    /// Its configuration file: the value of `SLURM_CONF` for all who use it.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    fn bring_up(&mut self, go_on: &dyn Fn() -> Result<(), String>) -> Result<(), String> {
        let dir = self.directory.path().to_owned();
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        // MUNGE wants its socket to be reachable for all, and its key for nobody.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        for (name, mode) in [("socket", 0o755), ("key", 0o700), ("state", 0o700), ("spool", 0o755), ("log", 0o755)] {
            fs::DirBuilder::new().mode(mode).create(dir.join(name)).map_err(failed)?;
        }
        for node in NODES {
            fs::create_dir(dir.join("spool").join(node)).map_err(failed)?;
        }
        let mut key = [0; 256];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut key))
            .map_err(failed)?;
        let mut file =
            fs::File::options().write(true).create_new(true).mode(0o400).open(dir.join("key/key")).map_err(failed)?;
        file.write_all(&key).map_err(failed)?;
        let ports = free_ports().map_err(failed)?;
        fs::write(&self.config, config(&dir, &host_name(), &self.user, ports)).map_err(failed)?;

        let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap_or_default();
        let programs = self.programs;
        let conf = at("slurm.conf");
        self.daemon(
            "munged",
            &programs.munged,
            &[
                "--foreground",
                &format!("--socket={}", at("socket/munge")),
                &format!("--key-file={}", at("key/key")),
                &format!("--pid-file={}", at("socket/pid")),
                &format!("--seed-file={}", at("key/seed")),
                "--num-threads=2",
            ],
        )?;
        let socket = dir.join("socket/munge");
        self.wait_until("munged has a socket", go_on, || socket.exists())?;
        self.daemon("slurmctld", &programs.slurmctld, &["-D", "-f", &conf])?;
        self.wait_until("slurmctld listens", go_on, || TcpStream::connect(("127.0.0.1", ports[0])).is_ok())?;
        for node in NODES {
            self.daemon(node, &programs.slurmd, &["-D", "-f", &conf, "-N", node])?;
        }
        let sinfo = || self.ask(&programs.sinfo, &["--noheader", "--Node", "--format=%t"]);
        let all_idle =
            || sinfo().is_ok_and(|states| states.lines().filter(|state| *state == "idle").count() == NODES.len());
        self.wait_until("both nodes are idle", go_on, all_idle)
    }

    fn daemon(&mut self, name: &str, program: &Path, args: &[&str]) -> Result<(), String> {
        let log = fs::File::create(self.log(name)).map_err(|error| format!("{}: {error}", self.log(name).display()))?;
        let copy = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.programs.setpriv);
        command.args(["--pdeathsig", "TERM"]).arg(program).args(args);
        // What is not ours to say: a Slurm around us.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("SLURM") {
                command.env_remove(variable);
            }
        }
        command.env("SLURM_CONF", &self.config).current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(log).stderr(copy).process_group(0);
        let child = command.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
        self.daemons.push(Daemon { name: name.to_owned(), child });
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join("log").join(name)
    }

    fn ask(&self, program: &Path, args: &[&str]) -> Result<String, String> {
        let output = Command::new(program).args(args).env("SLURM_CONF", &self.config).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn wait_until(
        &self,
        what: &str,
        go_on: &dyn Fn() -> Result<(), String>,
        holds: impl Fn() -> bool,
    ) -> Result<(), String> {
        let deadline = Instant::now() + START;
        while !holds() {
            go_on()?;
            if Instant::now() > deadline {
                return Err(format!("not within {START:?}: {what}"));
            }
            // sleep: the daemons tell nobody.
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The end of what each daemon wrote.
    pub(crate) fn last_words(&self) -> String {
        let mut said = String::new();
        for Daemon { name, .. } in &self.daemons {
            let text = String::from_utf8_lossy(&fs::read(self.log(name)).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            said += &format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(25)..].join("\n"));
        }
        said
    }

    /// Ends all jobs, then the daemons, and says what had to be killed.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let killed = self.take_down();
        if killed.is_empty() { Ok(()) } else { Err(format!("of the cluster was left and is killed now: {killed:?}")) }
    }

    /// Does nothing the second time.
    fn take_down(&mut self) -> Vec<String> {
        if self.daemons.is_empty() {
            return Vec::new();
        }
        if self.daemons.len() > 2 {
            // Jobs end as long as there are daemons that end them.
            let _ = self.ask(&self.programs.scancel, &["--quiet", "--user", &self.user]);
            let deadline = Instant::now() + KILL_WAIT + END;
            let jobs = || self.ask(&self.programs.squeue, &["--noheader"]).is_ok_and(|jobs| !jobs.trim().is_empty());
            while jobs() && Instant::now() < deadline {
                // sleep: as above.
                std::thread::sleep(LOOK);
            }
        }
        let mut killed = Vec::new();
        for mut daemon in std::mem::take(&mut self.daemons).into_iter().rev() {
            if !daemon.end() {
                killed.push(daemon.name);
            }
        }
        // Steps' own daemons and whoever hid from them: each knows the cluster by its configuration file.
        let mark = format!("SLURM_CONF={}", self.config.display());
        for pid in processes_with_env(&mark) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            killed.push(format!("{} (pid {pid})", name.trim()));
            // It may end by itself just now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        killed
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let killed = self.take_down();
        if !killed.is_empty() {
            eprintln!("xtask: of the cluster was left and is killed now: {killed:?}");
        }
    }
}

impl Daemon {
    /// Whether SIGTERM was enough.
    fn end(&mut self) -> bool {
        // Not reaped yet, so the pid is its own.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            // sleep: waiting with a limit; std has no other way.
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

/// The living processes, but for this one, that have this in their environment.
fn processes_with_env(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
    };
    pids.filter(has).filter(|pid| *pid != std::process::id().cast_signed()).collect()
}

/// Ports that nobody listens on now: the controller's, then one for each node.
fn free_ports() -> std::io::Result<[u16; 3]> {
    let mut listeners = Vec::new();
    let mut ports = [0; 3];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

/// The text of slurm.conf(5).
fn config(dir: &Path, host: &str, user: &str, ports: [u16; 3]) -> String {
    let dir = dir.display();
    let [controller, first, second] = ports;
    let [n1, n2] = NODES;
    let kill_wait = KILL_WAIT.as_secs();
    // cred_expire: a job that is requeued waits that long, 120 s otherwise. CPUs: more than there are, so that tests
    // need not wait for one another.
    format!(
        "ClusterName=rankrun_test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/socket/munge,cred_expire=5
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/state/slurmctld.pid
SlurmdPidFile={dir}/spool/%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait={kill_wait}
MessageTimeout=20
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
NodeName={n1} NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=256
NodeName={n2} NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=256
PartitionName=test Nodes={n1},{n2} Default=YES MaxTime=INFINITE State=UP
"
    )
}

//! The launchers in `examples/` are short, and do what they say. Not here: the example of `rankrun-functions` (`functions`).

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rankrun::Signal;
use rankrun_testkit::{Launcher, eventually, example, scripted_worker};
use rankrun_tests::{LIMIT, has_python};

#[test]
fn each_is_under_sixty_lines() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for name in ["rankrun-launcher/examples/torchrun.rs", "rankrun/examples/sweep.rs", "rankrun/examples/tokio.rs"] {
        let text = fs::read_to_string(crates.join(name)).expect("it is there");
        assert!(text.lines().count() < 60, "{name}: {} lines", text.lines().count());
    }
}

const SCRIPT: &str = r#"
import os, sys
env = os.environ
print(*sys.argv[1:], *(env[name] for name in "RANK WORLD_SIZE LOCAL_RANK TORCHELASTIC_RESTART_COUNT".split()))
sys.exit(int(env["RANK"] == "1" and env["TORCHELASTIC_RESTART_COUNT"] == "0") * 7)
"#;

fn torchrun(dir: &Path, args: &[&str]) -> Launcher {
    let script = dir.join("train.py");
    fs::write(&script, SCRIPT).expect("a script");
    Launcher::new(example("rankrun-launcher", "torchrun")).args(args).arg(script).args(["--lr", "0.1"])
}

#[test]
fn the_minimal_torchrun_runs_ranks_again_and_reports_once() {
    if !has_python("the minimal torchrun") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--nproc_per_node", "2", "--max-restarts", "1"];
    let output = torchrun(dir.path(), &args).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let lines = output.stdout_text();
    for line in ["[default1]:--lr 0.1 1 2 1 0", "[default0]:--lr 0.1 0 2 0 1", "[default1]:--lr 0.1 1 2 1 1"] {
        assert!(lines.lines().any(|other| other == line), "`{line}` not in {output}");
    }
    let output = torchrun(dir.path(), &args[..2]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    let said = output.stderr_text();
    assert!(said.starts_with("default FAILED: rank 1 ") && said.contains("not started again: "), "{output}");
    let output = torchrun(dir.path(), &["--nodes", "2"]).run_with_timeout(LIMIT);
    assert!(output.code == Some(1) && output.stderr_text().contains("usage: torchrun"), "{output}");
    let output = torchrun(dir.path(), &["-n", "2"]).run_with_timeout(LIMIT);
    assert!(output.code == Some(1) && output.stderr_text().contains("usage: torchrun"), "{output}");
}

#[test]
fn the_minimal_torchrun_stops_of_a_signal() {
    if !has_python("the minimal torchrun") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("hang.py"), "import time; print('here'); time.sleep(600)").expect("a script");
    let launcher = Launcher::new(example("rankrun-launcher", "torchrun")).args(["--nproc-per-node", "2"]);
    let mut running = launcher.arg(dir.path().join("hang.py")).spawn();
    running.wait_for_stdout("[default1]:here\n", LIMIT);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_timeout(LIMIT).code, Some(143));
    running.assert_nothing_left();
}

#[test]
fn the_sweep_runs_a_group_for_each_value_but_not_more_at_once_than_it_may() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    // Rank 0 of each group writes when it begins and when it ends; a line is one write.
    let script = format!(
        "[ $LOCAL_RANK = 1 ] || echo + >> {log}; sleep 0.2; [ $LOCAL_RANK = 1 ] || echo - >> {log}; echo $LR; \
         [ $LR != bad ] || exit 3",
        log = log.display()
    );
    let launcher = Launcher::new(example("rankrun", "sweep")).args(["LR=1,2,bad,4,5", "sh", "-c", &script]);
    let output = launcher.run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(1), "one of the groups failed: {output}");
    let said = output.stderr_text();
    for value in ["1", "2", "4", "5"] {
        assert!(output.stdout_text().contains(&format!("[LR={value} 1]:{value}\n")), "{output}");
        assert!(said.lines().any(|line| line == format!("LR={value}: SUCCEEDED")), "{output}");
    }
    assert!(said.contains("LR=bad FAILED: rank ") && said.contains("exit code 3"), "{output}");
    let (mut at_once, mut most) = (0, 0);
    for line in fs::read_to_string(&log).expect("the workers wrote it").lines() {
        at_once += if line == "+" { 1 } else { -1 };
        most = most.max(at_once);
    }
    // A group that failed may have been stopped before its second line.
    assert_eq!(most.clamp(2, 3), most, "{output}");
}

/// Says a line to the service and gives its answer; an error where an attempt ends just then.
fn ask(address: &str, line: &str) -> std::io::Result<String> {
    let mut service = TcpStream::connect(address)?;
    service.write_all(line.as_bytes())?;
    let mut answer = String::new();
    service.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn the_service_supervises_its_group_and_answers_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let go = dir.path().join("go");
    let first = format!("until test -e {}; do sleep 0.01; done; exit 4", go.display());
    let script = format!("[ $ATTEMPT = 1 ] && exec {} hang; {first}", scripted_worker().display());
    let mut running = Launcher::new(example("rankrun", "tokio")).args(["sh", "-c", &script]).spawn();
    running.wait_for_stdout("listening on 127.0.0.1:", LIMIT);
    let address = || {
        let text = String::from_utf8_lossy(&running.stdout()).into_owned();
        text.lines().next().filter(|_| text.contains('\n')).map(|line| line.replace("listening on ", ""))
    };
    let address = eventually("it says where", LIMIT, address);
    assert_eq!(ask(&address, "status\n").expect("it answers"), "service runs, attempt 0\n");
    fs::write(&go, "").expect("a file");
    running.wait_for_stdout("attempt 0: FAILED", LIMIT);
    eventually("the next attempt", LIMIT, || {
        ask(&address, "status\n").is_ok_and(|answer| answer == "service runs, attempt 1\n")
    });
    ask(&address, "stop\n").expect("it answers");
    let output = running.wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stdout_text().ends_with("attempt 1: STOPPED, failed ranks []\n"), "{output}");
    running.assert_nothing_left();
}

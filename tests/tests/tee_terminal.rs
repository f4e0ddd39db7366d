//! Teed lines on a terminal: colours, aligned prefixes, progress bars that live, and a terminal that nobody reads.

use rankrun_testkit::{Launcher, Running};
use rankrun_tests::terminal::pair;
use rankrun_tests::{LIMIT, Terminal};

/// Starts rankrun on a terminal, without what this test's own environment says about terminals.
fn start(args: &[&str], script: &str, change: impl FnOnce(Launcher) -> Launcher) -> (Running, Terminal) {
    let (terminal, slave) = Terminal::new();
    let launcher = Launcher::rankrun().env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    let launcher = change(launcher.stdout(slave));
    (launcher.args(args).args(["sh", "-c", script]).spawn(), terminal)
}

fn shown(args: &[&str], script: &str, change: impl FnOnce(Launcher) -> Launcher) -> String {
    let (mut running, terminal) = start(args, script, change);
    let output = running.wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    terminal.end()
}

#[test]
fn each_rank_has_a_colour_and_its_own_colours_end_with_the_line() {
    let text = shown(&["-n", "2", "-t", "1"], r"printf '\033[31mred %s\n' $RANK; echo plain", |launcher| launcher);
    for line in [
        "\x1b[36m[default0]:\x1b[0m\x1b[31mred 0\x1b[0m\n",
        "\x1b[36m[default0]:\x1b[0mplain\n",
        "\x1b[33m[default1]:\x1b[0m\x1b[31mred 1\x1b[0m\n",
        "\x1b[33m[default1]:\x1b[0mplain\n",
    ] {
        assert!(text.contains(line), "{line:?} not in {text:?}");
    }
}

#[test]
fn without_colour_the_prefix_is_torchruns() {
    assert_eq!(shown(&["-t", "1"], "echo hi", |launcher| launcher.env("NO_COLOR", "1")), "[default0]:hi\n");
    assert_eq!(shown(&["-t", "1", "--color", "never"], "echo hi", |launcher| launcher), "[default0]:hi\n");
    assert_eq!(shown(&["-t", "1"], "echo hi", |launcher| launcher.env("TERM", "dumb")), "[default0]:hi\n");
}

#[test]
fn prefixes_of_different_length_are_aligned() {
    let text =
        shown(&["-n", "11", "-t", "0:1,10:1", "-r", "1-9:1", "--color", "never"], "echo hi", |launcher| launcher);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[default0]: hi", "[default10]:hi"]);
}

#[test]
fn a_progress_bar_lives_in_the_last_row_and_lines_stay_whole_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"wait_for() { until [ -e "$DIR/$1" ]; do sleep 0.02; done; }
        if [ $RANK = 0 ]; then
            printf '\r 10%%'; wait_for a; printf '\r 20%%'; wait_for c; printf '\r100%%\n'
        else
            wait_for b; echo a line
        fi"#;
    let args = ["-n", "2", "-t", "1", "--color", "never"];
    let (mut running, terminal) = start(&args, script, |launcher| launcher.env("DIR", dir.path()));
    let touch = |name| std::fs::write(dir.path().join(name), "").unwrap();
    terminal.wait_for("\x1b[K[default0]: 10%\r");
    touch("a");
    terminal.wait_for("\x1b[K[default0]: 20%\r");
    touch("b");
    // The frame is drawn again below the line that took its place.
    terminal.wait_for("\x1b[K[default1]:a line\n\x1b[K[default0]: 20%\r");
    touch("c");
    let output = running.wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let text = terminal.end();
    assert!(text.ends_with("\x1b[K[default0]:100%\n"), "{text:?}");
}

#[test]
fn frames_come_at_a_bounded_rate() {
    let script = r#"i=0; while [ $i -lt 4000 ]; do printf '\rstep %s' $i; i=$((i+1)); done; echo"#;
    let begin = std::time::Instant::now();
    let text = shown(&["-t", "1", "--color", "never"], script, |launcher| launcher);
    let most = begin.elapsed().as_millis() / 100 + 2;
    let frames = text.matches("\x1b[K[default0]:step").count();
    assert!(frames as u128 <= most + 1, "{frames} frames in {:?}", begin.elapsed());
    assert!(text.ends_with("[default0]:step 3999\n"), "{text:?}");
}

#[test]
fn progress_off_shows_last_states_only() {
    let args = ["-t", "1", "--color", "never", "--progress", "off"];
    let text = shown(&args, r"printf '\r10%%'; sleep 0.3; printf '\r100%%\n'", |launcher| launcher);
    assert_eq!(text, "[default0]:100%\n");
}

#[test]
fn a_terminal_that_nobody_reads_delays_neither_workers_nor_the_result() {
    let (master, slave) = pair();
    let script = r#"yes 0123456789 | head -c 1000000; printf '\r10%'; exit 7"#;
    let output =
        Launcher::rankrun().stdout(slave).args(["-n", "2", "-t", "1", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    drop(master);
}

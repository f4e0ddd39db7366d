//! Whatever a worker leaves at the path of its error file, the run ends at once with its exit code, and the report says
//! what is wrong with the file. Not here: what reading it costs, which is a test of `rankrun-errors`.

use std::time::Duration;

use rankrun_testkit::Launcher;
use rankrun_tests::LIMIT;

#[test]
fn an_error_file_that_is_none_is_said_to_be_that() {
    for (make, problem) in [
        ("head -c 20000000 /dev/zero > $F", "is too large: 20000000 bytes where at most 3145728 are read"),
        ("mkfifo $F", "is not a regular file but a FIFO"),
        ("mkdir $F", "is not a regular file but a directory"),
        ("ln -s /etc/hostname $F", "is not a regular file but a symbolic link"),
        ("printf '{\"message\": \"m' > $F", "is cut off after 14 bytes, in the middle of its JSON text"),
        ("printf '\\377\\0\\1' > $F", "is not UTF-8 text (first bad byte at offset 0)"),
        (": > $F", "is empty"),
        ("echo '[1]' > $F", "holds an array where a JSON object is expected"),
    ] {
        let script = format!("F=$TORCHELASTIC_ERROR_FILE; {make}; echo 'last words' >&2; exit 9");
        let output = Launcher::rankrun().args(["-n", "1", "-r", "2", "sh", "-c", &script]).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(9), "{make}: {output}");
        let report = output.stderr_text();
        assert!(report.contains(&format!("error.json (not used: it {problem})\n")), "{make}: {report}");
        assert!(report.contains("exit code 9, last on stderr: last words\n"), "{make}: {report}");
        assert!(output.elapsed < Duration::from_secs(10), "{make}: {:?}", output.elapsed);
    }
}

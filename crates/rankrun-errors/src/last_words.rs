//! Which of a worker's last lines says why it ended: [`last_words`], and which to show: [`excerpt`]. Pure. Not here: reading
//! them (`rankrun-logs`).
//!
//! Mostly it is the very last one. Runtimes that say the reason first, and after it a stack or advice, are known by their
//! words: the panics of Rust and Go, C++'s uncaught exceptions, sanitizers, Python's fatal errors, what aborts a program of C.
//! Of two such reports in a row the first is the reason, as of a panic of a thread and that of `main`, which waited for it;
//! what the program itself says after a report counts more.
//!
//! Of Python's tracebacks the last one counts, as each is of what came of the one before it, and also if a few lines follow:
//! those of the message, of `atexit`, of libraries that were not shut down.

/// How many lines may follow a traceback of Python that is still the reason.
const AFTER_TRACEBACK: usize = 12;

/// The line that says most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastWords {
    /// The line; where a report has its place in one line and its reason in the next, both.
    pub(crate) text: String,
    /// Whether a runtime has said it at the end of the process.
    pub(crate) is_report: bool,
    /// Which of the lines it is.
    at: usize,
    /// Which line shows that it is that: of an exception the frame that raised it, or its header.
    known_by: usize,
}

/// What says most among a worker's last lines; `None` if there are only blank ones.
pub(crate) fn last_words(lines: &[String]) -> Option<LastWords> {
    let mut found: Option<(usize, Option<Report>)> = None;
    let mut since_traceback = 0;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        // An excerpt begins with what says most.
        if at > 0 && is_omission(line) {
            found = Some((0, Report::begun_by(&lines[0]).filter(|report| report.is_whole(lines))));
            break;
        }
        let before = found.and_then(|(_, report)| report);
        let Some(report) = Report::begun_by(line).filter(|report| report.is_whole(&lines[at..])) else {
            if !is_noise(line) {
                since_traceback += 1;
                if !before.is_some_and(Report::is_traceback) || since_traceback > AFTER_TRACEBACK {
                    found = Some((at, None));
                }
            }
            at += 1;
            continue;
        };
        let counts = match before {
            // What its workers said is more than a launcher says of them.
            _ if report == Report::Launcher => found.is_none(),
            Some(before) => before.is_traceback() && report.is_traceback(),
            None => true,
        };
        if counts {
            found = Some((at, Some(report)));
            since_traceback = 0;
        }
        at += report.length(&lines[at..]);
    }
    let (at, report) = match found {
        Some(found) => found,
        None => (lines.iter().rposition(|line| !line.trim().is_empty())?, None),
    };
    let traceback = report.filter(|report| report.is_traceback());
    let begun = at;
    let at = at + traceback.and_then(|traceback| traceback.exception(&lines[at..])).unwrap_or(0);
    let (text, is_report) = match report {
        Some(report) if traceback.is_none() => (report.text(&lines[at..]), true),
        _ => (bare(&lines[at]).to_owned(), false),
    };
    let frame = lines[begun..at].iter().rposition(|line| is_python_frame(without_rank(line)));
    Some(LastWords { text, is_report, at, known_by: begun + frame.unwrap_or(0) })
}

/// At most so many of a worker's last lines to show: the last ones or, if the one that says why it ended is before them,
/// those from that one on, with the very last ones. Where lines are left out a line says how many.
///
/// ```
/// let mut lines = vec!["panic: no data".to_owned(), String::new(), "goroutine 1 [running]:".to_owned()];
/// lines.extend((0..20).map(|frame| format!("\t/src/train.go:{frame}")));
/// let shown = rankrun_errors::excerpt(lines, 6);
/// assert_eq!(shown[..3], ["panic: no data", "", "... 18 lines left out ..."]);
/// assert_eq!(shown[3..], ["\t/src/train.go:17", "\t/src/train.go:18", "\t/src/train.go:19"]);
/// ```
#[must_use]
pub fn excerpt(mut lines: Vec<String>, count: usize) -> Vec<String> {
    /// The fewest lines of the beginning, which may have the place and the reason, with that about what is left out.
    const BEGINNING: usize = 3;
    /// The most lines of the end.
    const ENDING: usize = 3;
    let (words_at, known_by) = last_words(&lines).map_or((usize::MAX, usize::MAX), |words| (words.at, words.known_by));
    let start = lines.len().saturating_sub(count);
    if known_by >= start || count <= BEGINNING {
        return lines.split_off(start);
    }
    if words_at > start {
        let rest = lines.split_off(words_at);
        let frame = lines.swap_remove(known_by);
        return std::iter::once(frame).chain(rest).collect();
    }
    let ending = ENDING.min(count - BEGINNING);
    let rest = lines.split_off(lines.len() - ending);
    let left_out = lines.split_off(words_at + count - ending - 1).len();
    let mut shown = lines.split_off(words_at);
    shown.push(format!("{LEFT_OUT_BEFORE}{left_out}{LEFT_OUT_AFTER}"));
    shown.extend(rest);
    shown
}

const LEFT_OUT_BEFORE: &str = "... ";
const LEFT_OUT_AFTER: &str = " lines left out ...";

fn is_omission(line: &str) -> bool {
    line.starts_with(LEFT_OUT_BEFORE) && line.ends_with(LEFT_OUT_AFTER)
}

/// What a runtime says at the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    RustPanic,
    GoPanic,
    CppTerminate,
    Sanitizer,
    PythonFatal,
    /// Of Rust, which a signal ends then.
    StackOverflow,
    /// One line of the C library, which aborts then.
    Abort,
    /// Of Python, with its header or from one of its frames on.
    Traceback,
    /// Of an exception group of Python.
    GroupTraceback,
    /// Of a rankrun that was the worker.
    Launcher,
}

impl Report {
    fn begun_by(line: &str) -> Option<Self> {
        let line = without_rank(line);
        let starts = |prefix| line.starts_with(prefix);
        // Without the thread if it is of the panic hook.
        if starts("thread '") && line.contains(" panicked at ") || starts("panicked at ") && line.ends_with(':') {
            Some(Self::RustPanic)
        } else if starts("panic: ") || starts("fatal error: ") {
            Some(Self::GoPanic)
        } else if starts("terminate called ") {
            Some(Self::CppTerminate)
        } else if (starts("==") || starts("SUMMARY: ") || starts("WARNING: ")) && line.contains("Sanitizer: ") {
            Some(Self::Sanitizer)
        } else if starts("Fatal Python error: ") {
            Some(Self::PythonFatal)
        } else if starts("thread '") && line.ends_with(" has overflowed its stack") {
            Some(Self::StackOverflow)
        } else if is_abort(line) {
            Some(Self::Abort)
        } else if line == "Traceback (most recent call last):" || is_python_frame(line) {
            Some(Self::Traceback)
        } else if line.contains(" FAILED: rank ") && line.contains(" (local rank ") && line.contains(", pid ") {
            Some(Self::Launcher)
        } else {
            (line.trim_start() == "+ Exception Group Traceback (most recent call last):")
                .then_some(Self::GroupTraceback)
        }
    }

    fn is_traceback(self) -> bool {
        matches!(self, Self::Traceback | Self::GroupTraceback)
    }

    /// Whether it has come to its reason.
    fn is_whole(self, lines: &[String]) -> bool {
        !self.is_traceback() || self.exception(lines).is_some()
    }

    /// Where the exception of a traceback is, counted from its first line.
    fn exception(self, lines: &[String]) -> Option<usize> {
        let is_it = |line: &str| match self {
            Self::GroupTraceback => line.trim_start().strip_prefix("| ").is_some_and(|rest| !rest.starts_with(' ')),
            _ => !line.is_empty() && !line.starts_with([' ', '\t']),
        };
        let found = lines.iter().skip(1).position(|line| is_it(without_rank(line)))? + 1;
        let own = |line: &str| match self {
            Self::GroupTraceback => line.trim_start().starts_with('|'),
            _ => line.starts_with([' ', '\t']),
        };
        // Another program may have written between.
        lines[1..found].iter().all(|line| own(without_rank(line))).then_some(found)
    }

    /// The reason, from the lines from its first on.
    fn text(self, lines: &[String]) -> String {
        let first = lines[0].trim();
        let second = lines.get(1).map_or("", |line| line.trim());
        match self {
            Self::RustPanic => {
                let place = first.find("panicked at ").map_or(first, |at| &first[at..]);
                // Before Rust 1.73 the message was in the same line.
                if place.ends_with(':') && !second.is_empty() { format!("{place} {second}") } else { place.to_owned() }
            }
            Self::CppTerminate if second.starts_with("what():") => format!("{first}: {second}"),
            _ => first.to_owned(),
        }
    }

    /// How many of the lines from its first on are its own; noise after them need not be among these.
    fn length(self, lines: &[String]) -> usize {
        let rest = &lines[1..];
        let own = |is_own: fn(&str) -> bool| rest.iter().take_while(|line| is_own(line) || is_noise(line)).count();
        1 + match self {
            Self::RustPanic => rust_message(rest),
            Self::GoPanic => own(|line| {
                let starts = ["goroutine ", "created by ", "[signal ", "runtime stack", "exit status ", "\t"];
                starts.iter().any(|start| line.starts_with(start)) || line.ends_with(')')
            }),
            Self::CppTerminate => own(|line| line.trim_start().starts_with("what():")),
            Self::StackOverflow => own(|line| line.starts_with("fatal runtime error: ")),
            Self::Abort => 0,
            Self::Launcher => own(|line| {
                let starts = [" ", "Root cause (", "Other failures ("];
                starts.iter().any(|start| line.starts_with(start)) || line.ends_with(": stopped by rankrun")
            }),
            Self::Traceback => self.exception(lines).unwrap_or(0),
            Self::GroupTraceback => {
                let own = |line: &&String| without_rank(line).trim_start().starts_with(['|', '+']);
                rest.iter().take_while(own).count()
            }
            // What it shows of memory is all sorts of lines.
            Self::Sanitizer => rest.iter().rposition(|line| is_sanitizers_end(line)).map_or(0, |at| at + 1),
            Self::PythonFatal => own(|line| {
                let starts = [" ", "Current thread ", "Thread 0x", "Python runtime state", "Extension modules: "];
                starts.iter().any(|start| line.starts_with(start))
            }),
        }
    }
}

/// How many lines after the place of a panic are its message: all before a note or backtrace, or what is indented.
fn rust_message(lines: &[String]) -> usize {
    let end = lines.iter().position(|line| is_rusts_note(line) || Report::begun_by(line).is_some());
    match end {
        Some(end) if is_rusts_note(&lines[end]) => end,
        _ => lines.len().min(1) + lines.iter().skip(1).take_while(|line| line.starts_with(' ')).count(),
    }
}

fn is_rusts_note(line: &str) -> bool {
    let starts = ["note: run with `RUST_BACKTRACE=", "note: Some details are omitted", "stack backtrace:"];
    starts.iter().any(|start| line.starts_with(start))
}

fn is_sanitizers_end(line: &str) -> bool {
    line.starts_with("SUMMARY: ") && line.contains("Sanitizer: ")
        || line.starts_with("==") && line.ends_with("==ABORTING")
}

/// The line without what torch puts before each line of its tracebacks, such as `[rank0]: `.
fn without_rank(line: &str) -> &str {
    let digits = line.strip_prefix("[rank").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    digits.and_then(|rest| rest.strip_prefix("]: ").or_else(|| rest.strip_prefix("]:"))).unwrap_or(line)
}

/// A line without what surrounds it in tracebacks.
fn bare(line: &str) -> &str {
    let text = without_rank(line).trim();
    text.strip_prefix("| ").unwrap_or(text)
}

fn is_python_frame(line: &str) -> bool {
    line.starts_with("  File \"") && line.contains("\", line ")
}

/// Whether assert(3) or glibc says this and aborts.
fn is_abort(line: &str) -> bool {
    let by_malloc =
        ["free(): ", "malloc(): ", "realloc(): ", "munmap_chunk(): ", "double free or corruption", "corrupted "];
    line.contains(": Assertion `") && line.ends_with("' failed.")
        || line.starts_with("*** ") && line.ends_with(" ***: terminated")
        || by_malloc.iter().any(|start| line.starts_with(start)) && line.len() < 80
}

/// Whether a line says nothing of the reason, whatever is before it: advice, frames of stacks, a shell's word of the end.
fn is_noise(line: &str) -> bool {
    let text = line.trim();
    let is_indented = line.starts_with([' ', '\t']);
    let is_numbered = || {
        let after = text.trim_start_matches(|c: char| c.is_ascii_digit());
        after.len() < text.len() && after.starts_with(": ")
    };
    let is_frame = is_indented && (text.starts_with("at ") || is_numbered()) || text.starts_with("frame #");
    let by_shell = ["Aborted", "Aborted (core dumped)", "Segmentation fault", "Segmentation fault (core dumped)"];
    let is_javas_rest = is_indented && text.starts_with("... ") && text.ends_with(" more");
    text.is_empty()
        || is_frame
        || is_javas_rest
        || line.starts_with("Node.js v")
        || line.starts_with("rankrun: run directory: ")
        || line.starts_with("rankrun: each worker gets OMP_NUM_THREADS=")
        || is_rusts_note(line)
        || text == "thread caused non-unwinding panic. aborting."
        || text == "thread panicked while processing panic. aborting."
        || by_shell.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program says in the end, what says most of it, and whether that is a runtime's report.
    const TABLE: &[(&str, &str, bool, &str)] = &[
        ("a plain last line", "no such file: a.txt", false, "loading\nno such file: a.txt\n\n"),
        (
            "a panic of Rust",
            "panicked at src/main.rs:3:5: boom",
            true,
            "ready\n\nthread 'main' (77) panicked at src/main.rs:3:5:\nboom\n\
             note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        ),
        (
            "one with a message of several lines",
            "panicked at src/main.rs:3:5: the model is bad:",
            true,
            "thread 'main' panicked at src/main.rs:3:5:\nthe model is bad:\nlayer 7\nlayer 9\n\
             note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        ),
        (
            "an assertion of Rust, not the first panic of the process",
            "panicked at a.rs:1:2: assertion `left == right` failed",
            true,
            "thread 'w' panicked at a.rs:1:2:\nassertion `left == right` failed\n  left: 1\n right: 2\n",
        ),
        (
            "one with a backtrace",
            "panicked at src/main.rs:3:5: boom",
            true,
            "thread 'main' panicked at src/main.rs:3:5:\nboom\nstack backtrace:\n   0: __rustc::rust_begin_unwind\n             \
             at /rustc/library/std/src/panicking.rs:697:5\n   1: core::panicking::panic_fmt\n   2: main::train\n             \
             at ./src/main.rs:3:5\n   3: main::main\n   4: std::rt::lang_start\n   5: main\n   6: __libc_start_main\n   \
             7: _start\nnote: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\n",
        ),
        (
            "one before Rust 1.73",
            "panicked at 'boom', src/main.rs:3:5",
            true,
            "thread 'main' panicked at 'boom', src/main.rs:3:5\nnote: run with `RUST_BACKTRACE=1` environment variable\n",
        ),
        (
            "one of a thread and then of main, which joins it",
            "panicked at a.rs:1:2: boom",
            true,
            "thread '<unnamed>' panicked at a.rs:1:2:\nboom\nnote: run with `RUST_BACKTRACE=1` environment variable\n\n\
             thread 'main' panicked at b.rs:3:4:\ncalled `Result::unwrap()` on an `Err` value: Any { .. }\n",
        ),
        (
            "one in a destructor, which aborts",
            "panicked at a.rs:1:2: boom",
            true,
            "thread 'main' panicked at a.rs:1:2:\nboom\nnote: run with `RUST_BACKTRACE=1` environment variable\n\n\
             thread 'main' panicked at b.rs:3:4:\nagain\n\nthread 'main' panicked at library/core/src/panicking.rs:1:1:\n\
             panic in a destructor during cleanup\nthread caused non-unwinding panic. aborting.\n",
        ),
        (
            "one in the hook for panics, which aborts",
            "panicked at a.rs:1:2: boom",
            true,
            "thread 'main' panicked at a.rs:1:2:\nboom\npanicked at b.rs:3:4:\nin the hook\n\
             thread panicked while processing panic. aborting.\n",
        ),
        (
            "a panic that is survived, and then an error",
            "Error: no more workers",
            false,
            "thread 'w' panicked at a.rs:1:2:\nboom\nnote: run with `RUST_BACKTRACE=1` environment variable\n\
             Error: no more workers\n",
        ),
        (
            "a traceback of Python",
            "ValueError: loss is NaN",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\nValueError: loss is NaN\n",
        ),
        (
            "one with a message of several lines and words of the end after it",
            "RuntimeError: CUDA error: an assert on the device",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\n    ~~~~^^\n\
             RuntimeError: CUDA error: an assert on the device\nit may be reported late\n  third\n\ncleanup done: bye\n",
        ),
        (
            "one of torch, each line with its rank",
            "ValueError: loss is NaN",
            false,
            "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 3, in <module>\n[rank3]:     main()\n\
             [rank3]: ValueError: loss is NaN\n[rank3]:[W712 ProcessGroupNCCL.cpp:1250] Warning: not destroyed\n",
        ),
        (
            "one of what came of another",
            "OSError: cannot load",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nKeyError: 'a'\n\nDuring handling of the \
             above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"a.py\", line 5, in f\n    \
             raise OSError(\"cannot load\")\nOSError: cannot load\n",
        ),
        (
            "the end of one",
            "SyntaxError: invalid syntax",
            false,
            "  File \"a.py\", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\n",
        ),
        (
            "one that was survived, and then much else",
            "no data left",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nKeyError: 'a'\nstep 1\nstep 2\nstep 3\n\
             step 4\nstep 5\nstep 6\nstep 7\nstep 8\nstep 9\nstep 10\nstep 11\nstep 12\nno data left\n",
        ),
        (
            "one that has not come to its exception",
            "main()",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\n",
        ),
        (
            "a group of exceptions",
            "ExceptionGroup: many (2 sub-exceptions)",
            false,
            "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1, in <module>\n  |     raise e\n  \
             | ExceptionGroup: many (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n    | ValueError: a\n    \
             +------------------------------------\n",
        ),
        (
            "an error of torch with frames of C++",
            "RuntimeError: NCCL error",
            false,
            "RuntimeError: NCCL error\nframe #0: c10::Error::Error() + 0x57 (0x7f in libc10.so)\nframe #1: <unknown>\n",
        ),
        (
            "a fatal error of Python",
            "Fatal Python error: Segmentation fault",
            true,
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  \
             File \"a.py\", line 3 in main\n  File \"a.py\", line 9 in <module>\n\nExtension modules: numpy (total: 1)\n",
        ),
        (
            "an assertion of C under a shell",
            "a.out: a.c:5: main: Assertion `x > 0' failed.",
            true,
            "a.out: a.c:5: main: Assertion `x > 0' failed.\nAborted (core dumped)\n",
        ),
        (
            "an exception of C++",
            "terminate called after throwing an instance of 'std::runtime_error': what():  boom",
            true,
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom\nAborted\n",
        ),
        (
            "an exception without words",
            "terminate called without an active exception",
            true,
            "terminate called without an active exception\n",
        ),
        (
            "a panic of Go",
            "panic: boom",
            true,
            "panic: boom\n\ngoroutine 1 [running]:\nmain.train(...)\n\t/src/a.go:4\nmain.main()\n\t/src/a.go:9 +0x18\nexit status 2\n",
        ),
        (
            "a fault of Go",
            "panic: runtime error: invalid memory address or nil pointer dereference",
            true,
            "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation \
             code=0x1 addr=0x0 pc=0x45]\n\ngoroutine 7 [running]:\nmain.f(0x0)\n\t/src/a.go:4 +0x1d\ncreated by main.main in \
             goroutine 1\n\t/src/a.go:8 +0x25\n",
        ),
        (
            "a sanitizer",
            "==77==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x4f",
            true,
            "=====\n==77==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x4f\nREAD of size 4 at 0x602 \
             thread T0\n    #0 0x4f in main /src/a.c:5\n\nSUMMARY: AddressSanitizer: heap-buffer-overflow /src/a.c:5 in main\n\
             Shadow bytes around the buggy address:\n=>0x0c04: fa fa[04]fa\n  Freed heap region:       fd\n==77==ABORTING\n",
        ),
        (
            "the end of a sanitizer's report",
            "SUMMARY: AddressSanitizer: heap-buffer-overflow /src/a.c:5 in main",
            true,
            "    #9 0x4f in main /src/a.c:5\nSUMMARY: AddressSanitizer: heap-buffer-overflow /src/a.c:5 in main\n\
             Shadow bytes around the buggy address:\n=>0x0c04: fa fa[04]fa\n==77==ABORTING\n",
        ),
        (
            "an exception of Java",
            "Exception in thread \"main\" java.lang.Error: boom",
            false,
            "Exception in thread \"main\" java.lang.Error: boom\n\tat A.train(A.java:3)\n\tat A.main(A.java:9)\n",
        ),
        (
            "one with its cause",
            "Caused by: java.io.IOException: disk",
            false,
            "Exception in thread \"main\" java.lang.Error: boom\n\tat A.train(A.java:3)\nCaused by: java.io.IOException: disk\n\
             \tat A.load(A.java:7)\n\t... 1 more\n",
        ),
        (
            "an error of Node.js",
            "Error: boom",
            false,
            "/src/n.js:1\nfunction f(){throw new Error(\"boom\")} f();\n             ^\n\nError: boom\n    at f (/src/n.js:1:20)\n    \
             at Object.<anonymous> (/src/n.js:1:39)\n\nNode.js v20.20.2\n",
        ),
        (
            "a stack overflow of Rust",
            "thread 'main' (7) has overflowed its stack",
            true,
            "\nthread 'main' (7) has overflowed its stack\nfatal runtime error: stack overflow, aborting\n",
        ),
        (
            "a launcher's report",
            "trainer FAILED: rank 3 (local rank 1, pid 42) on a: exit code 5, last on stderr: boom",
            true,
            "trainer FAILED: rank 3 (local rank 1, pid 42) on a: exit code 5, last on stderr: boom\n\nRoot cause (first observed \
             failure):\n  time:       now\n  exit code:  5, pid 42\n\nrank 0: stopped by rankrun\nrankrun: run directory: /tmp/x\n",
        ),
        (
            "a launcher's report after what its worker said",
            "ValueError: loss is NaN",
            false,
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\nValueError: loss is NaN\ntrainer \
             FAILED: rank 3 (local rank 1, pid 42) on a: exit code 1\n\nRoot cause (first observed failure):\n  time:       now\n  hint:\n    \
             no error file\nrankrun: run directory: /tmp/x\n",
        ),
        ("a heap that is broken", "free(): invalid pointer", true, "step 1\nfree(): invalid pointer\n"),
        (
            "a stack that is broken",
            "*** stack smashing detected ***: terminated",
            true,
            "*** stack smashing detected ***: terminated\n",
        ),
        ("nothing but advice", "Aborted (core dumped)", false, "\nAborted (core dumped)\n"),
    ];

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_says_most_is_found_whatever_follows_it() {
        for (what, expected, is_report, text) in TABLE {
            let words = last_words(&lines(text)).unwrap();
            assert_eq!((words.text.as_str(), words.is_report), (*expected, *is_report), "{what}");
        }
        assert_eq!(last_words(&lines("\n  \n")), None);
    }

    #[test]
    fn an_excerpt_has_what_says_most_and_is_not_longer_than_asked_for() {
        for (what, expected, _, text) in TABLE {
            let whole = lines(text);
            let shown = excerpt(whole.clone(), 5);
            assert!(shown.len() <= 5 && shown.last() == whole.last(), "{what}: {shown:?}");
            assert_eq!(last_words(&shown).unwrap().text, *expected, "{what}: {shown:?}");
        }
        let trace = lines("panic: a\n\ngoroutine 1 [running]:\n\tb\n\tc\n\td\n\te\n\tf\n\tg");
        let shown = "panic: a\n\ngoroutine 1 [running]:\n... 3 lines left out ...\n\te\n\tf\n\tg";
        assert_eq!(excerpt(trace, 7), lines(shown), "the most of it from the reason on");
        assert_eq!(excerpt(lines("a\nb\nc"), 2), ["b", "c"]);
        assert_eq!(excerpt(Vec::new(), 2), [""; 0]);
    }
}

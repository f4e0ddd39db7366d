//! The language of the `scripted-worker` program: what its arguments mean. Not here: doing it ([`crate::perform`]).
//!
//! The arguments are instructions, done in order; at the end the worker exits with code 0.
//! `[ ... ]` holds a script of its own; where one is wanted, a single instruction may stand without brackets.
//!
//! | instruction | what the worker does |
//! |---|---|
//! | `out TEXT`, `err TEXT` | writes TEXT and a newline to stdout, stderr |
//! | `out-raw TEXT`, `err-raw TEXT` | writes TEXT with `\n`, `\r`, `\t`, `\\`, `\xNN` replaced, without a newline |
//! | `lines N LEN` | writes N lines to stdout, each of LEN bytes and a newline ([`crate::numbered_line`]) |
//! | `exit CODE` | exits |
//! | `abort`, `segv`, `stop` | raises SIGABRT, SIGSEGV (both with their default action), SIGSTOP |
//! | `raise SIGNAL` | raises a signal with its default action |
//! | `ignore SIGNAL` | lets a signal do nothing, from now on; not inherited by what it spawns |
//! | `on SIGNAL SCRIPT` | does SCRIPT in a thread of its own for each such signal, from now on |
//! | `hang` | does nothing, for ever, without waking up |
//! | `sleep MILLIS` | sleeps |
//! | `spin MILLIS` | uses CPU time |
//! | `memory MIB` | allocates and touches memory, and keeps it |
//! | `touch FILE` | creates a file |
//! | `wait-for FILE` | waits until a file is there, at most a minute |
//! | `env NAME` | prints a variable's value; `<unset>` where there is none |
//! | `cwd` | prints the working directory |
//! | `pids` | prints pid, parent's pid, process group and session |
//! | `fds` | prints the numbers of its open file descriptors |
//! | `mask` | prints the lines SigBlk, SigIgn, SigCgt of proc_pid_status(5) |
//! | `spawn SCRIPT` | starts a child that does SCRIPT, in the same process group, and goes on |
//! | `daemon SCRIPT` | leaves a process that does SCRIPT in a session of its own, its parent gone, and goes on |
//! | `setsid` | moves to a session of its own; fails in a group leader |
//! | `wait` | waits until the children of `spawn` have ended |
//! | `if-rank N SCRIPT` | does SCRIPT only where `LOCAL_RANK` is N |
//! | `repeat N SCRIPT` | does SCRIPT N times |
//! | `error-file JSON` | writes JSON to the file that `TORCHELASTIC_ERROR_FILE` names |
//!
//! The Rust runtime ignores SIGPIPE and catches SIGSEGV and SIGBUS in the worker itself (not in what it starts), so for
//! what a launcher leaves of these three, ask `sh -c 'grep Sig /proc/$$/status'` instead of `mask`.

use std::path::PathBuf;
use std::time::Duration;

use rankrun_types::Signal;

/// Instructions in the order in which they are done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// The words they were read from, without brackets around: what another worker takes as its arguments.
    pub words: Vec<String>,
}

/// One thing to do; see the table of the module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instruction {
    /// Write bytes to stdout: `out`, `out-raw`.
    Out(Vec<u8>),
    /// Write bytes to stderr: `err`, `err-raw`.
    Err(Vec<u8>),
    /// Write `count` numbered lines of `length` bytes.
    Lines {
        /// How many.
        count: u64,
        /// Bytes of each, without the newline.
        length: usize,
    },
    /// Exit with a code, 0 to 255.
    Exit(u8),
    /// Raise a signal with its default action: `raise`, `abort`, `segv`, `stop`.
    Raise(Signal),
    /// Let a signal do nothing.
    Ignore(Signal),
    /// Do a script at each such signal.
    On(Signal, Script),
    /// Do nothing for ever.
    Hang,
    /// Sleep.
    Sleep(Duration),
    /// Use this much CPU time.
    Spin(Duration),
    /// Keep this many MiB of touched memory.
    Memory(usize),
    /// Create a file.
    Touch(PathBuf),
    /// Wait for a file.
    WaitFor(PathBuf),
    /// Print a variable.
    Env(String),
    /// Print the working directory.
    Cwd,
    /// Print pid, ppid, pgid, sid.
    Pids,
    /// Print the open file descriptors.
    Fds,
    /// Print the signal masks.
    Mask,
    /// Start a child.
    Spawn(Script),
    /// Leave a daemon.
    Daemon(Script),
    /// Move to a session of its own.
    Setsid,
    /// Wait for the children.
    Wait,
    /// Do a script on one local rank only.
    IfRank(usize, Script),
    /// Do a script several times.
    Repeat(u64, Script),
    /// Write the error file.
    ErrorFile(String),
}

/// The arguments are no script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A word where an instruction must stand is none.
    #[error("unknown instruction `{0}`")]
    Unknown(String),
    /// The script ends where an instruction needs one more word.
    #[error("`{instruction}` needs {expected}")]
    Missing {
        /// The instruction.
        instruction: String,
        /// What it needs.
        expected: &'static str,
    },
    /// A word is not what its instruction needs.
    #[error("`{instruction}` needs {expected}, not `{got}`")]
    Invalid {
        /// The instruction.
        instruction: String,
        /// What it needs.
        expected: &'static str,
        /// The word.
        got: String,
    },
    /// A `[` without its `]`.
    #[error("`[` without `]`")]
    Unclosed,
}

impl Script {
    /// Reads a script from a worker's arguments, the program's name not among them.
    ///
    /// # Errors
    /// [`ScriptError`] for the first word that does not fit.
    ///
    /// ```
    /// use rankrun_testkit::script::{Instruction, Script};
    ///
    /// let script = Script::parse(["out", "hello", "exit", "7"]).unwrap();
    /// assert_eq!(script.instructions, [Instruction::Out(b"hello\n".to_vec()), Instruction::Exit(7)]);
    /// ```
    pub fn parse<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Result<Self, ScriptError> {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        let mut reader = Reader { words: &words, at: 0 };
        let mut instructions = Vec::new();
        while reader.at < words.len() {
            instructions.push(reader.instruction()?);
        }
        Ok(Self { instructions, words })
    }
}

struct Reader<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    fn argument(&mut self, instruction: &str, expected: &'static str) -> Result<&'a str, ScriptError> {
        self.next().ok_or_else(|| ScriptError::Missing { instruction: instruction.to_owned(), expected })
    }

    fn convert<T>(
        &mut self,
        instruction: &str,
        expected: &'static str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ScriptError> {
        let word = self.argument(instruction, expected)?;
        convert(word).ok_or_else(|| ScriptError::Invalid {
            instruction: instruction.to_owned(),
            expected,
            got: word.to_owned(),
        })
    }

    fn number<T: std::str::FromStr>(&mut self, instruction: &str, expected: &'static str) -> Result<T, ScriptError> {
        self.convert(instruction, expected, |word| word.parse().ok())
    }

    fn millis(&mut self, instruction: &str) -> Result<Duration, ScriptError> {
        self.number(instruction, "a number of milliseconds").map(Duration::from_millis)
    }

    fn signal(&mut self, instruction: &str) -> Result<Signal, ScriptError> {
        self.convert(instruction, "a signal", |word| word.parse().ok())
    }

    /// A signal that a handler can be set for: the registry refuses the faults, the kernel KILL and STOP.
    fn handled_signal(&mut self, instruction: &str) -> Result<Signal, ScriptError> {
        self.convert(instruction, "a signal that can be handled", |word| {
            let signal: Signal = word.parse().ok()?;
            (!signal_hook::consts::FORBIDDEN.contains(&signal.as_raw())).then_some(signal)
        })
    }

    fn text(&mut self, instruction: &str) -> Result<Vec<u8>, ScriptError> {
        let mut line = self.argument(instruction, "a text")?.as_bytes().to_vec();
        line.push(b'\n');
        Ok(line)
    }

    fn raw_text(&mut self, instruction: &str) -> Result<Vec<u8>, ScriptError> {
        self.convert(instruction, "a text with escapes \\n \\r \\t \\\\ \\xNN", unescape)
    }

    fn path(&mut self, instruction: &str) -> Result<PathBuf, ScriptError> {
        self.argument(instruction, "a file").map(PathBuf::from)
    }

    /// `[ ... ]`, or one instruction.
    fn script(&mut self, instruction: &str) -> Result<Script, ScriptError> {
        match self.words.get(self.at).map(String::as_str) {
            None => Err(ScriptError::Missing { instruction: instruction.to_owned(), expected: "a script" }),
            Some("[") => {
                self.at += 1;
                let start = self.at;
                let mut instructions = Vec::new();
                loop {
                    match self.words.get(self.at).map(String::as_str) {
                        None => return Err(ScriptError::Unclosed),
                        Some("]") => break,
                        Some(_) => instructions.push(self.instruction()?),
                    }
                }
                let words = self.words[start..self.at].to_vec();
                self.at += 1;
                Ok(Script { instructions, words })
            }
            Some(_) => {
                let start = self.at;
                let instructions = vec![self.instruction()?];
                Ok(Script { instructions, words: self.words[start..self.at].to_vec() })
            }
        }
    }

    /// Called only where a word is left.
    fn instruction(&mut self) -> Result<Instruction, ScriptError> {
        let name = self.argument("script", "an instruction")?;
        Ok(match name {
            "out" => Instruction::Out(self.text(name)?),
            "err" => Instruction::Err(self.text(name)?),
            "out-raw" => Instruction::Out(self.raw_text(name)?),
            "err-raw" => Instruction::Err(self.raw_text(name)?),
            "lines" => Instruction::Lines {
                count: self.number(name, "a number of lines")?,
                length: self.number(name, "a number of bytes")?,
            },
            "exit" => Instruction::Exit(self.number(name, "a code from 0 to 255")?),
            "abort" => Instruction::Raise(Signal::ABRT),
            "segv" => Instruction::Raise(Signal::SEGV),
            "stop" => Instruction::Raise(Signal::STOP),
            "raise" => Instruction::Raise(self.signal(name)?),
            "ignore" => Instruction::Ignore(self.handled_signal(name)?),
            "on" => Instruction::On(self.handled_signal(name)?, self.script(name)?),
            "hang" => Instruction::Hang,
            "sleep" => Instruction::Sleep(self.millis(name)?),
            "spin" => Instruction::Spin(self.millis(name)?),
            "memory" => Instruction::Memory(self.number(name, "a number of MiB")?),
            "touch" => Instruction::Touch(self.path(name)?),
            "wait-for" => Instruction::WaitFor(self.path(name)?),
            "env" => Instruction::Env(self.argument(name, "a variable's name")?.to_owned()),
            "cwd" => Instruction::Cwd,
            "pids" => Instruction::Pids,
            "fds" => Instruction::Fds,
            "mask" => Instruction::Mask,
            "spawn" => Instruction::Spawn(self.script(name)?),
            "daemon" => Instruction::Daemon(self.script(name)?),
            "setsid" => Instruction::Setsid,
            "wait" => Instruction::Wait,
            "if-rank" => Instruction::IfRank(self.number(name, "a local rank")?, self.script(name)?),
            "repeat" => Instruction::Repeat(self.number(name, "a number of times")?, self.script(name)?),
            "error-file" => Instruction::ErrorFile(self.argument(name, "a text")?.to_owned()),
            unknown => return Err(ScriptError::Unknown(unknown.to_owned())),
        })
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let value = |digit: u8| char::from(digit).to_digit(16);
                u8::try_from(value(digits[0])? * 16 + value(digits[1])?).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, ScriptError> {
        Script::parse(text.split_whitespace())
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn instructions_come_in_the_order_of_the_words() {
        let script = parse("out hello lines 3 40 sleep 5 raise rtmin+1 exit 7").unwrap();
        let expected = [
            Instruction::Out(b"hello\n".to_vec()),
            Instruction::Lines { count: 3, length: 40 },
            Instruction::Sleep(Duration::from_millis(5)),
            Instruction::Raise("SIGRTMIN+1".parse().unwrap()),
            Instruction::Exit(7),
        ];
        assert_eq!(script.instructions, expected);
        assert_eq!(parse("").unwrap(), Script::default());
    }

    #[test]
    fn a_nested_script_keeps_its_words_for_the_child() {
        let script = parse("spawn [ ignore TERM spawn [ hang ] wait ] exit 0").unwrap();
        let [Instruction::Spawn(child), Instruction::Exit(0)] = &script.instructions[..] else {
            panic!("{script:?}");
        };
        assert_eq!(child.words.join(" "), "ignore TERM spawn [ hang ] wait");
        assert_eq!(child, &Script::parse(child.words.clone()).unwrap());
    }

    #[test]
    fn one_instruction_needs_no_brackets() {
        let with = parse("on TERM [ exit 3 ] if-rank 1 [ on INT [ touch f ] ]").unwrap();
        let without = parse("on TERM exit 3 if-rank 1 on INT touch f").unwrap();
        let Instruction::On(_, handler) = &without.instructions[0] else { panic!("{without:?}") };
        assert_eq!(handler.words, ["exit", "3"]);
        assert_eq!(with.instructions.len(), 2);
        assert_eq!(with.instructions[0], without.instructions[0]);
    }

    #[test]
    fn a_text_that_looks_like_an_instruction_or_bracket_is_a_text() {
        let script = parse("out exit out ] err [").unwrap();
        assert_eq!(script.instructions[1], Instruction::Out(b"]\n".to_vec()));
    }

    #[test]
    fn escapes_give_bytes() {
        assert_eq!(unescape(r"a\n\r\t\\\x00\xfF"), Some(b"a\n\r\t\\\x00\xff".to_vec()));
        for bad in [r"\", r"\q", r"\x", r"\x1", r"\xg0", r"\x+1", "\\x\u{e9}"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(error("out a frobnicate"), "unknown instruction `frobnicate`");
        assert_eq!(error("exit"), "`exit` needs a code from 0 to 255");
        assert_eq!(error("exit 256"), "`exit` needs a code from 0 to 255, not `256`");
        assert_eq!(error("raise SIGFOO"), "`raise` needs a signal, not `SIGFOO`");
        assert_eq!(error("ignore KILL"), "`ignore` needs a signal that can be handled, not `KILL`");
        assert_eq!(error("on SEGV exit 1"), "`on` needs a signal that can be handled, not `SEGV`");
        assert_eq!(error("spawn [ hang"), "`[` without `]`");
        assert_eq!(error("spawn"), "`spawn` needs a script");
        assert_eq!(error("hang ]"), "unknown instruction `]`");
    }
}

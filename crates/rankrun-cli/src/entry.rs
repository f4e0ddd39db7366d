//! What each worker runs: the program and its arguments, from what was typed. Not here: the arguments (`torchrun_args`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rankrun::crates::types::escape_os_str;

use crate::torchrun_args::EntryArgs;

/// The Python of who says nothing else.
const PYTHON: &str = "python3";

/// Without it a teed line can be seconds late, and the last ones of a worker that is killed are lost.
const UNBUFFERED: &str = "-u";

/// A program and its arguments, as the kernel gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// An argument that has no effect.
    pub(crate) warning: Option<&'static str>,
}

/// What was typed cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("there is no PROGRAM to run")]
    NoProgram,
    #[error("invalid value `{}` for PROGRAM with --run-path: expected an absolute path", escape_os_str(.0))]
    NotAbsolute(OsString),
}

/// `python_exec`: the environment's `PYTHON_EXEC`.
pub(crate) fn resolve(
    args: &EntryArgs,
    command: &[OsString],
    python_exec: Option<&OsStr>,
) -> Result<Entry, EntryError> {
    let (program, rest) = command.split_first().ok_or(EntryError::NoProgram)?;
    if args.run_path && !Path::new(program).is_absolute() {
        return Err(EntryError::NotAbsolute(program.clone()));
    }
    let before: &[&str] = if args.module {
        &[UNBUFFERED, "-m"]
    } else if args.run_path || (!args.no_python && is_python(program)) {
        &[UNBUFFERED]
    } else {
        let warning =
            args.python.is_some().then_some("--python has no effect: PROGRAM is no .py file, and not run with -m");
        return Ok(Entry { program: program.clone(), args: rest.to_vec(), warning });
    };
    let python = args.python.as_deref().or(python_exec.filter(|python| !python.is_empty()));
    let before = before.iter().map(OsString::from);
    Ok(Entry {
        program: python.unwrap_or(OsStr::new(PYTHON)).to_owned(),
        args: before.chain(command.iter().cloned()).collect(),
        warning: None,
    })
}

fn is_python(program: &OsStr) -> bool {
    program.as_bytes().ends_with(b".py")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &EntryArgs, command: &str, python_exec: Option<&str>) -> String {
        let command: Vec<OsString> = command.split(' ').map(Into::into).collect();
        let entry = resolve(args, &command, python_exec.map(OsStr::new)).unwrap();
        let words: Vec<&str> =
            std::iter::once(&entry.program).chain(&entry.args).map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn a_python_file_runs_with_python_and_all_else_directly() {
        let plain = EntryArgs::default();
        assert_eq!(line(&plain, "train.py --lr 1", None), "python3 -u train.py --lr 1");
        assert_eq!(line(&plain, "dir/a.py", Some("/opt/python")), "/opt/python -u dir/a.py");
        assert_eq!(line(&plain, "dir/a.py", Some("")), "python3 -u dir/a.py");
        assert_eq!(line(&plain, "./a.out x.py", None), "./a.out x.py");
        let no_python = EntryArgs { no_python: true, ..EntryArgs::default() };
        assert_eq!(line(&no_python, "./train.py -x", None), "./train.py -x");
    }

    #[test]
    fn a_module_and_a_run_path_are_python_whatever_their_name() {
        let module = EntryArgs { module: true, ..EntryArgs::default() };
        assert_eq!(line(&module, "pkg.train --lr 1", None), "python3 -u -m pkg.train --lr 1");
        let python = EntryArgs { python: Some("python3.12".into()), ..module };
        assert_eq!(line(&python, "pkg.train", Some("/opt/python")), "python3.12 -u -m pkg.train");
        let run_path = EntryArgs { run_path: true, no_python: true, ..EntryArgs::default() };
        assert_eq!(line(&run_path, "/srv/script x", None), "python3 -u /srv/script x");
        let error = resolve(&run_path, &["script".into()], None).unwrap_err();
        assert!(error.to_string().contains("`script`") && error.to_string().contains("absolute"), "{error}");
        assert_eq!(resolve(&run_path, &[], None), Err(EntryError::NoProgram));
    }

    #[test]
    fn a_python_that_nothing_runs_with_is_told_of() {
        let args = EntryArgs { python: Some("pypy".into()), ..EntryArgs::default() };
        assert!(resolve(&args, &["true".into()], None).unwrap().warning.is_some());
        assert!(resolve(&args, &["a.py".into()], None).unwrap().warning.is_none());
    }
}

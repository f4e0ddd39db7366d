//! Where the files of a run go that was given no log directory: [`directory`]. Not here: what lies in it (`default_specs`).

use std::env;
use std::io;
use std::path::PathBuf;

use crate::error::LogsError;
use crate::made::{Made, PRIVATE};

/// Where to look when `TMPDIR` says nothing or is of no use; as Python's `tempfile`, and so torchrun, has it.
const USUAL: [&str; 2] = ["/tmp", "/var/tmp"];

/// Makes `rankrun_<random>` for the owner only, in the first place that takes it, and says if that is not where `TMPDIR`
/// says. Its path is absolute.
pub(crate) fn directory(made: &mut Made, warnings: &mut Vec<String>) -> Result<PathBuf, LogsError> {
    let wanted = env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    first_of(places(wanted, env::current_dir().ok()), made, warnings)
}

/// The places in their order, each once. A relative one counts from the current directory.
fn places(wanted: Option<PathBuf>, current: Option<PathBuf>) -> Vec<PathBuf> {
    // In a directory that was removed no path counts from anything.
    let wanted =
        wanted.and_then(|wanted| if wanted.is_absolute() { Some(wanted) } else { Some(current.clone()?.join(wanted)) });
    let mut places: Vec<PathBuf> = Vec::new();
    for place in wanted.into_iter().chain(USUAL.iter().map(PathBuf::from)).chain(current) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn first_of(places: Vec<PathBuf>, made: &mut Made, warnings: &mut Vec<String>) -> Result<PathBuf, LogsError> {
    let mut first = None;
    for place in &places {
        match made.unique(place, "rankrun_", PRIVATE) {
            Ok(path) => {
                warnings.extend(first.map(|why| format!("{why}; using {}", path.display())));
                return Ok(path);
            }
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    let source = match first {
        Some(LogsError::Create { source, .. }) => source,
        Some(error) => return Err(error),
        None => io::ErrorKind::NotFound.into(),
    };
    Err(LogsError::NoTemporary { places, source })
}

/// Places as they stand in a message.
pub(crate) fn listed(places: &[PathBuf]) -> String {
    let all: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn places_are_where_tmpdir_says_then_the_usual_ones_then_here() {
        let shown = |wanted: Option<&str>, current: Option<&str>| {
            listed(&places(wanted.map(Into::into), current.map(Into::into)))
        };
        assert_eq!(shown(None, Some("/home")), "/tmp, /var/tmp or /home");
        assert_eq!(shown(Some("/scratch"), Some("/tmp")), "/scratch, /tmp or /var/tmp");
        assert_eq!(shown(Some("a/b"), Some("/home")), "/home/a/b, /tmp, /var/tmp or /home");
        assert_eq!(shown(Some("a/b"), None), "/tmp or /var/tmp");
    }

    #[test]
    fn the_first_that_takes_it_is_used_and_what_was_wrong_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, here) = (dir.path().join("missing"), dir.path().to_owned());
        let (mut made, mut warnings) = (Made::default(), Vec::new());
        let path = first_of(vec![missing.clone(), here.clone()], &mut made, &mut warnings).unwrap();
        assert!(path.starts_with(&here), "{path:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(
            warnings[0].contains("missing/rankrun_*") && warnings[0].ends_with(&*path.to_string_lossy()),
            "{warnings:?}"
        );
        warnings.clear();
        first_of(vec![here], &mut made, &mut warnings).unwrap();
        assert_eq!(warnings, [""; 0]);
        let error = first_of(vec![missing.clone(), missing], &mut made, &mut warnings).unwrap_err().to_string();
        assert!(error.contains("missing or ") && error.contains("os error 2"), "{error}");
    }
}

//! Whether log files can be complete: [`LogHealth`] says once what speaks against it, [`HealthWatch`] looks after that on its
//! own. Not here: writing the files, which the workers do.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use nix::sys::statvfs::statvfs;

use crate::error::LogsError;
use crate::tail::timeout;
use crate::tail::watch::Watcher;

/// How long after something was written or deleted the directory and its disk are looked at.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What speaks against a run's log files being complete: it is said once, as a warning of the crate `log`, by whoever notices
/// it first, and kept for the end of the run.
///
/// A cheap handle; copies speak of the same run. Those who notice are a [`Tail`](crate::Tail)
/// ([`TailOptions::health`](crate::TailOptions::health)), a [`HealthWatch`], and [`WorkerTerminals`](crate::WorkerTerminals)
/// when a write fails.
///
/// ```
/// use rankrun_logs::LogHealth;
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().to_owned();
/// let health = LogHealth::new(&path);
/// assert_eq!(health.look(), None);
/// drop(dir);
/// let said = health.look().expect("it is gone");
/// assert_eq!(said, format!("log directory {} is gone, and the log and error files with it", path.display()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LogHealth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    files: Vec<PathBuf>,
    said: Mutex<Option<String>>,
}

impl LogHealth {
    /// Of the run in this directory.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self::with_files(directory, Vec::new())
    }

    /// Of the run in this directory with these log files, which exist already: it is said also when one of them is gone, or the
    /// directory that it is in.
    #[must_use]
    pub fn with_files(directory: impl Into<PathBuf>, files: Vec<PathBuf>) -> Self {
        Self(Arc::new(Inner { directory: directory.into(), files, said: Mutex::default() }))
    }

    /// Looks now, unless something was said before, and gives what has been said.
    ///
    /// Does not block, but on a file system that does: not for a thread that must not wait.
    pub fn look(&self) -> Option<String> {
        if self.said().is_none()
            && let Some(text) = doubts(&self.0.directory, &self.0.files)
        {
            self.say(text);
        }
        self.said()
    }

    /// What has been said.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says it, unless something was said before.
    pub(crate) fn say(&self, text: String) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none() {
            *said = Some(text.clone());
            drop(said);
            log::warn!("{text}");
        }
    }

    /// Adds to what has been said, if anything was, for the end of the run; it is not said again.
    ///
    /// `text`: one fragment, such as what [`Unsaved::save`](crate::Unsaved::save) gives.
    pub fn add(&self, text: &str) {
        if let Some(said) = &mut *self.0.said.lock().unwrap_or_else(PoisonError::into_inner) {
            *said = format!("{said}; {text}");
        }
    }

    /// Sets watches that tell of what goes away in the directory and in those of the files, as far as they can be had.
    pub(crate) fn arm(&self, watcher: &Watcher) -> Vec<i32> {
        let mut directories: Vec<&Path> = self.0.files.iter().filter_map(|file| file.parent()).collect();
        directories.push(&self.0.directory);
        directories.sort_unstable();
        directories.dedup();
        directories.into_iter().filter_map(|directory| watcher.arm_directory(directory).ok()).collect()
    }
}

/// Looks after the health of log files that nobody follows.
///
/// A thread, `rankrun-health`, looks a second after a file was written to, or something in the run's directories was deleted, at
/// most once a second; it does not wake while nobody writes, and ends once something was said. Dropping this ends it.
#[derive(Debug)]
pub struct HealthWatch {
    end: Arc<EventFd>,
}

impl HealthWatch {
    /// Starts to look after these files, which exist already. Does not block.
    ///
    /// Without inotify, which is then said, nothing is looked at.
    ///
    /// # Errors
    /// [`LogsError::Health`] if the thread cannot be started.
    pub fn start(health: LogHealth, files: Vec<PathBuf>) -> Result<Self, LogsError> {
        let failed = |source| LogsError::Health { source };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let end = Arc::new(EventFd::from_flags(flags).map_err(|errno| failed(errno.into()))?);
        let watch = Self { end: Arc::clone(&end) };
        match Watcher::new() {
            Ok(watcher) => {
                let thread = std::thread::Builder::new().name("rankrun-health".to_owned());
                thread.spawn(move || attend(&health, &files, watcher, &end)).map_err(failed)?;
            }
            Err(errno) => log::warn!("no inotify for log files ({errno}): full disks are noticed when the run ends"),
        }
        Ok(watch)
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        // It fails only when the counter is full, and then it is readable already.
        let _ = self.end.write(1);
    }
}

/// The thread.
fn attend(health: &LogHealth, files: &[PathBuf], mut watcher: Watcher, end: &EventFd) {
    // Handlers of the host program belong to its own threads.
    let _ = SigSet::all().thread_block();
    let mut look_at = None;
    loop {
        if look_at.is_none_or(|at| at <= Instant::now()) {
            let _ = health.arm(&watcher);
            // Those that cannot be watched are looked at with the others.
            for file in files {
                let _ = watcher.arm(file);
            }
            // After the watches are set: what comes later is told.
            if health.look().is_some() {
                return;
            }
            look_at = None;
        }
        let left = look_at.map(|at: Instant| at.saturating_duration_since(Instant::now()));
        // While a look is due anyway, events can wait for it.
        let mut fds = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        fds.extend(left.is_none().then(|| PollFd::new(watcher.as_fd(), PollFlags::POLLIN)));
        if poll(&mut fds, timeout(left)).is_err() {
            continue;
        }
        if fds[0].any() == Some(true) {
            return;
        }
        if left.is_none() {
            watcher.drain(|_| {});
            look_at = Some(Instant::now() + PAUSE);
        }
    }
}

/// What speaks against the files of a log directory being complete; for people, `None` if nothing does.
///
/// The directory or a file is gone, or its file system is full, so that workers could not write. None of that holds up a
/// run: a worker's write fails as it would without a launcher.
fn doubts(log_directory: &Path, files: &[PathBuf]) -> Option<String> {
    if let Some(text) = is_gone(log_directory) {
        return Some(text);
    }
    let missing = |file: &&PathBuf| fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let mut missing = files.iter().filter(missing);
    if let Some(first) = missing.next() {
        let directories = first.ancestors().skip(1).take_while(|directory| *directory != log_directory);
        // The one that is nearest to the run's.
        if let Some(text) = directories.filter_map(is_gone).last() {
            return Some(text);
        }
        let others = match missing.count() {
            0 => String::new(),
            count => format!(", and {count} other log files"),
        };
        return Some(format!("log file {} is gone{others}: what workers write to it is lost", first.display()));
    }
    let shown = log_directory.display();
    let full = statvfs(log_directory).is_ok_and(|stat| stat.blocks() > 0 && stat.blocks_available() == 0);
    full.then(|| format!("the file system of {shown} is full: log and error files may be incomplete"))
}

/// What speaks against a directory being there.
fn is_gone(directory: &Path) -> Option<String> {
    let error = fs::metadata(directory).err()?;
    let shown = directory.display();
    Some(match error.kind() {
        io::ErrorKind::NotFound => format!("log directory {shown} is gone, and the log and error files with it"),
        _ => format!("log directory {shown} cannot be reached: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_goes_is_said_once_and_without_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        let health = LogHealth::new(&run);
        let file = run.join("stdout.log");
        // As long as it is open the kernel does not tell of the end of its directory.
        let log = crate::open_log(&file).unwrap();
        let watch = HealthWatch::start(health.clone(), vec![file]).unwrap();
        fs::remove_dir_all(&run).unwrap();
        rankrun_testkit::eventually("it is said", Duration::from_secs(60), || health.said().is_some());
        fs::create_dir(&run).unwrap();
        assert!(health.look().unwrap().ends_with("is gone, and the log and error files with it"));
        drop((log, watch));
    }

    #[test]
    fn of_what_is_gone_the_outermost_directory_is_named_or_the_first_file() {
        let dir = tempfile::tempdir().unwrap();
        let ranks = [0, 1].map(|rank| dir.path().join(format!("attempt_0/{rank}")));
        let files = ranks.clone().map(|rank| rank.join("stdout.log"));
        ranks.iter().for_each(|rank| fs::create_dir_all(rank).unwrap());
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let doubts = || doubts(dir.path(), &files).map(|text| text.replace(dir.path().to_str().unwrap(), "DIR"));
        assert_eq!(doubts(), None);
        fs::remove_file(&files[1]).unwrap();
        let lost = "what workers write to it is lost";
        assert_eq!(doubts().unwrap(), format!("log file DIR/attempt_0/1/stdout.log is gone: {lost}"));
        fs::remove_file(&files[0]).unwrap();
        let expected = format!("log file DIR/attempt_0/0/stdout.log is gone, and 1 other log files: {lost}");
        assert_eq!(doubts().unwrap(), expected);
        fs::remove_dir(&ranks[0]).unwrap();
        assert_eq!(doubts().unwrap(), "log directory DIR/attempt_0/0 is gone, and the log and error files with it");
        fs::remove_dir_all(dir.path().join("attempt_0")).unwrap();
        assert_eq!(doubts().unwrap(), "log directory DIR/attempt_0 is gone, and the log and error files with it");
    }

    #[test]
    fn a_directory_with_room_raises_no_doubts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(doubts(dir.path(), &[]), None);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(doubts(dir.path(), std::slice::from_ref(&file)), None);
        let text = doubts(&file.join("below"), &[]).unwrap();
        assert!(text.ends_with("cannot be reached: Not a directory (os error 20)"), "{text}");
    }
}

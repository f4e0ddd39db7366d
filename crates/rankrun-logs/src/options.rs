//! How a tail shows what it follows: [`TailOptions`], [`Progress`], [`ColorChoice`]. Not here: doing it (`lines`,
//! `tail`).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::filter::LineFilter;
use crate::health::LogHealth;
use crate::tail::{Consoles, SinkId, Tail, TailError, TailSource};
use crate::unsaved::Unsaved;

/// What becomes of a progress bar: text that a worker overwrites by `\r` before it ends the line.
///
/// A `\r` just before the newline is part of the line's end and begins no new state. Log files hold all bytes in any
/// case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Progress {
    /// All bytes of a line are shown, as they are, when the line ends.
    Raw,
    /// On a terminal the newest state is shown ten times a second, in the last row, in which ranks take turns of a
    /// second; when the line ends, its last state is shown as a line. Elsewhere as [`Progress::Off`].
    #[default]
    Latest,
    /// Only the last state of a line is shown, when the line ends: `a\rb\rc\n` is shown as `c\n`.
    Off,
}

/// Whether prefixes have a colour for each rank, and a worker's colours are ended where its line ends.
///
/// Colours that workers write pass in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ColorChoice {
    /// On consoles that are terminals. The environment (`NO_COLOR`) is the caller's to look at.
    Auto,
    /// On all consoles.
    Always,
    /// On none.
    #[default]
    Never,
}

/// How a [`Tail`] is started.
///
/// ```
/// use rankrun_logs::{ColorChoice, LineFilter, Progress, SinkId, TailOptions};
///
/// let options = TailOptions::new()
///     .progress(Progress::Off)
///     .color(ColorChoice::Auto)
///     .filter(SinkId::Stdout, "filtered_stdout.log", LineFilter::new(["loss", "error"])?);
/// # drop(options);
/// # Ok::<(), rankrun_logs::LineFilterError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TailOptions {
    pub(crate) progress: Progress,
    pub(crate) color: ColorChoice,
    pub(crate) timer: bool,
    pub(crate) health: Option<LogHealth>,
    pub(crate) unsaved: Option<Unsaved>,
    pub(crate) filters: Vec<(SinkId, PathBuf, Arc<LineFilter>)>,
    pub(crate) status: Option<StatusLine>,
}

/// What says the text of a status line.
#[derive(Clone)]
pub(crate) struct StatusLine(Arc<dyn Fn() -> String + Send + Sync>);

impl StatusLine {
    pub(crate) fn text(&self) -> String {
        (self.0)()
    }
}

impl fmt::Debug for StatusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusLine(..)")
    }
}

impl TailOptions {
    /// [`Progress::Latest`], no colours, no filters, inotify.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what becomes of progress bars.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets where colours are.
    #[must_use]
    pub fn color(mut self, color: ColorChoice) -> Self {
        self.color = color;
        self
    }

    /// Appends each line of the sources of `sink` that the filter matches also to the file, with its prefix.
    ///
    /// Of a line over 64 KiB, which is shown in parts, all parts are appended wherever its match is; of one that has more than
    /// 1 MiB before its match, those of the last MiB before it and all that follow.
    /// The file is made if need be. It gets its lines whether or not the console takes them: sources are followed once
    /// more for it. Of a progress bar it gets the last state, as a console that is no terminal.
    #[must_use]
    pub fn filter(mut self, sink: SinkId, file: impl Into<PathBuf>, filter: LineFilter) -> Self {
        self.filters.push((sink, file.into(), Arc::new(filter)));
        self
    }

    /// Shows a text in the last row of the terminal, below all lines; where there is no terminal, nowhere.
    ///
    /// On stderr if that is a terminal, else on stdout. `text` is called in the tail's thread once a second, first after a
    /// second, and must not block; an empty text shows nothing. Of a text that is too wide the beginning is shown. The
    /// row is gone when the tail has ended. What others write to the terminal stays whole, but so may what the row showed
    /// right of it.
    #[must_use]
    pub fn status_line(mut self, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.status = Some(StatusLine(Arc::new(text)));
        self
    }

    /// Looks at the files by timer only, every 1 to 20 ms: for files on a network file system that other hosts write
    /// to, where inotify tells nothing.
    #[must_use]
    pub fn timer(mut self) -> Self {
        self.timer = true;
        self
    }

    /// Looks after the health of the run's files too: a second after something was read, or something in its directory was
    /// deleted, and at most about once a second.
    #[must_use]
    pub fn health(mut self, health: LogHealth) -> Self {
        self.health = Some(health);
        self
    }

    /// Shows also what the workers' terminals could not write to the files, in its place among what the files have, and
    /// not the notes in the files about it.
    #[must_use]
    pub fn unsaved(mut self, unsaved: Unsaved) -> Self {
        self.unsaved = Some(unsaved);
        self
    }

    /// Starts a tail; see [`Tail::start`].
    ///
    /// # Errors
    /// [`TailError`]; no thread runs then.
    pub fn start(self, sources: Vec<TailSource>, consoles: Consoles) -> Result<Tail, TailError> {
        Tail::start_with(sources, consoles, self)
    }
}

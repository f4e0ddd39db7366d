//! What a tail writes to, and which source goes where in which form: [`Plan`]. Not here: writing (`console`, `engine`).

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;

use super::console::Console;
use super::core::CoreSource;
use super::{Consoles, IncompleteDrain, SinkId, TailError, TailSource, open_source};
use crate::health::LogHealth;
use crate::lines::Shape;
use crate::open::open_log;
use crate::options::{ColorChoice, Progress, StatusLine, TailOptions};

/// A console or a file of chosen lines.
pub(super) struct Output {
    pub(super) console: Console,
    name: Name,
    /// Progress bars are shown while they grow.
    pub(super) live: bool,
    colored: bool,
    /// It took nothing the last time; poll(2) says when it may again.
    pub(super) blocked: bool,
    pub(super) failed: Option<IncompleteDrain>,
}

enum Name {
    Console(SinkId),
    Filtered(PathBuf),
}

impl Output {
    fn console(id: SinkId, console: Console, options: &TailOptions) -> Self {
        let terminal = console.is_terminal();
        Self {
            live: terminal && options.progress == Progress::Latest,
            colored: match options.color {
                ColorChoice::Auto => terminal,
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
            console,
            name: Name::Console(id),
            blocked: false,
            failed: None,
        }
    }

    fn filtered(path: &PathBuf) -> Result<Self, TailError> {
        let file = open_log(path).map_err(|source| TailError::Filtered { source })?;
        let console = Console::new(file.into());
        let name = Name::Filtered(path.clone());
        Ok(Self { console, name, live: false, colored: false, blocked: false, failed: None })
    }

    /// Notes and says that writing has failed; of a file of chosen lines not if what the run's health says is why.
    pub(super) fn fail(&mut self, error: &io::Error, health: Option<&LogHealth>) {
        let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
        self.failed = match &self.name {
            Name::Console(id) if error.kind() == io::ErrorKind::BrokenPipe => {
                log::debug!("nobody reads {id} any more: output goes to the log files only");
                None
            }
            Name::Console(id) => Some(IncompleteDrain::ConsoleFailed { console: *id, errno }),
            Name::Filtered(path) => Some(IncompleteDrain::FilteredFailed { path: path.clone(), errno }),
        };
        let Some(text) = self.failed.as_ref().and_then(IncompleteDrain::said) else { return };
        match health.filter(|_| matches!(self.name, Name::Filtered(_))) {
            Some(health) if health.look().is_some() => {}
            Some(health) => health.say(text),
            None => log::warn!("{text}"),
        }
    }

    /// That it did not take so many bytes in time.
    pub(super) fn late(&self, bytes: u64) -> IncompleteDrain {
        match &self.name {
            Name::Console(console) => IncompleteDrain::Late { console: *console, bytes },
            Name::Filtered(path) => IncompleteDrain::FilteredLate { path: path.clone(), bytes },
        }
    }
}

/// Everything that the engine follows and writes to.
pub(super) struct Plan {
    pub(super) outputs: Vec<Output>,
    pub(super) sources: Vec<CoreSource>,
    /// The file of each source, and its path.
    pub(super) files: Vec<(PathBuf, File)>,
    /// Which of `sources` each given source has become.
    pub(super) given: Vec<Vec<usize>>,
    /// Which output has the status.
    pub(super) status: Option<(usize, StatusLine)>,
}

impl Plan {
    /// Opens the files to follow and those of chosen lines.
    pub(super) fn new(given: Vec<TailSource>, consoles: Consoles, options: &TailOptions) -> Result<Self, TailError> {
        let (stdout, stderr) = (Console::new(consoles.stdout), Console::new(consoles.stderr));
        let one = stdout.is_same(&stderr);
        let mut plan =
            Self { outputs: Vec::new(), sources: Vec::new(), files: Vec::new(), given: Vec::new(), status: None };
        plan.outputs.push(Output::console(SinkId::Stdout, stdout, options));
        if !one {
            plan.outputs.push(Output::console(SinkId::Stderr, stderr, options));
        }
        let last_console = plan.outputs.len() - 1;
        // Where messages go, if a person sees them there.
        let terminal = (0..=last_console).rev().find(|output| plan.outputs[*output].console.is_terminal());
        plan.status = terminal.zip(options.status.clone());
        for (_, path, _) in &options.filters {
            plan.outputs.push(Output::filtered(path)?);
        }
        let frames = options.progress != Progress::Raw;
        for source in given {
            let output = if source.sink == SinkId::Stdout { 0 } else { last_console };
            let shape = Shape { frames, reset: true, filter: None };
            let mut numbers = vec![plan.add(&source, output, shape)?];
            for (i, (sink, _, filter)) in options.filters.iter().enumerate() {
                if *sink == source.sink {
                    let shape = Shape { frames, reset: false, filter: Some(Arc::clone(filter)) };
                    numbers.push(plan.add(&source, last_console + 1 + i, shape)?);
                }
            }
            plan.given.push(numbers);
        }
        plan.align();
        Ok(plan)
    }

    fn add(&mut self, source: &TailSource, output: usize, shape: Shape) -> Result<usize, TailError> {
        self.files.push((source.path.clone(), open_source(source)?));
        let colored = self.outputs[output].colored;
        self.sources.push(CoreSource { prefix: source.prefix.clone(), colored, pad: 0, shape, output });
        Ok(self.sources.len() - 1)
    }

    /// Makes prefixes equally wide, on terminals only: what a program reads is as torchrun has it.
    fn align(&mut self) {
        for (i, output) in self.outputs.iter().enumerate().filter(|(_, output)| output.console.is_terminal()) {
            debug_assert!(matches!(output.name, Name::Console(_)));
            let widest =
                self.sources.iter().filter(|source| source.output == i).map(|source| source.prefix.width()).max();
            for source in self.sources.iter_mut().filter(|source| source.output == i) {
                source.pad = widest.unwrap_or(0).saturating_sub(source.prefix.width());
            }
        }
    }
}

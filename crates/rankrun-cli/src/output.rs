//! How the workers' lines are shown: the arguments, and what they mean in their surroundings. Not here: which streams
//! are teed (`args`), showing them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::str::FromStr;

use rankrun::crates::types::escape_line;
use rankrun::{ColorChoice, PrefixTemplate, Progress, WorkerGroup};

use crate::values::{Typed, ranks_of};

/// The arguments about shown lines.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Teed lines")]
pub(crate) struct OutputArgs {
    /// What stands before each line, made of ${role_name} ${local_rank} ${rank} ${hostname} ${pid} ${time} ${stream}
    /// [default: [${role_name}${local_rank}]:]
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) log_line_prefix_template: Option<PrefixTemplate>,

    /// What is shown of progress bars: the latest state, on a terminal while they grow; raw, all bytes; or off, only the
    /// last state of each line
    #[arg(long, value_name = "WHAT", default_value = "latest", hide_possible_values = true)]
    pub(crate) progress: ProgressArg,

    /// Gives workers a terminal for each stream that goes to a file (-r, -t): so they show colours and progress bars and
    /// write line by line as without rankrun
    #[arg(long)]
    pub(crate) pty: bool,

    /// Whether prefixes have a colour for each rank: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: ColorArg,

    /// Shows these ranks only; log files are complete for all
    #[arg(long, value_name = "RANKS")]
    pub(crate) local_ranks_filter: Option<Typed<RankList>>,

    /// Copies lines of stdout with any of these texts, separated by commas (`\,` is a comma), to filtered_stdout.log; may be repeated
    #[arg(long, value_name = "TEXTS", value_parser = parse_filters)]
    pub(crate) duplicate_stdout_filters: Vec<TextList>,

    /// Copies lines of stderr with any of these texts, separated by commas (`\,` is a comma), to filtered_stderr.log; may be repeated
    #[arg(long, value_name = "TEXTS", value_parser = parse_filters)]
    pub(crate) duplicate_stderr_filters: Vec<TextList>,
}

/// [`Progress`] as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ProgressArg {
    Raw,
    #[default]
    Latest,
    Off,
}

/// [`ColorChoice`] as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

/// Local ranks, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankList(BTreeSet<usize>);

impl FromStr for RankList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match crate::logs_args::parse_numbers(text) {
            Some(ranks) if !ranks.is_empty() => Ok(Self(ranks)),
            _ => Err("expected local ranks separated by commas, such as 3 or 0,2-5".to_owned()),
        }
    }
}

/// Texts, at least one, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextList(Vec<String>);

/// What the environment says about output.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputEnv {
    pub(crate) no_color: Option<OsString>,
    pub(crate) clicolor_force: Option<OsString>,
    pub(crate) term: Option<OsString>,
    /// Whether the terminal is one that a launcher has made to carry lines elsewhere, see [`is_relayed`].
    pub(crate) relayed: bool,
}

/// How lines are shown, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputPlan {
    template: PrefixTemplate,
    progress: Progress,
    color: ColorChoice,
    pub(crate) pty: bool,
    pub(crate) local_ranks_filter: Option<BTreeSet<usize>>,
    stdout_filters: Option<Vec<String>>,
    stderr_filters: Option<Vec<String>>,
}

/// A filter names a rank that there is not.
#[derive(Debug, thiserror::Error)]
#[error("invalid value '{}' for '--local-ranks-filter': there is no rank {rank}: expected {}", escape_line(.ranks), ranks_of(*size))]
pub(crate) struct RankFilterError {
    ranks: String,
    rank: usize,
    size: usize,
}

impl OutputEnv {
    pub(crate) fn of_this_process() -> Self {
        Self {
            no_color: std::env::var_os("NO_COLOR"),
            clicolor_force: std::env::var_os("CLICOLOR_FORCE"),
            term: std::env::var_os("TERM"),
            relayed: is_relayed(|name| std::env::var_os(name)),
        }
    }

    /// Whether the terminal has neither colours nor a way to erase, or nobody looks at it as one.
    pub(crate) fn is_dumb(&self) -> bool {
        self.relayed || self.term.as_deref() == Some(OsStr::new("dumb"))
    }

    fn color(&self) -> ColorChoice {
        let is_set = |value: &Option<OsString>| value.as_ref().is_some_and(|value| !value.is_empty());
        if is_set(&self.no_color) {
            ColorChoice::Never
        } else if is_set(&self.clicolor_force) && self.clicolor_force.as_deref() != Some(OsStr::new("0")) {
            ColorChoice::Always
        } else if self.is_dumb() {
            ColorChoice::Never
        } else {
            ColorChoice::Auto
        }
    }
}

/// Whether the launcher above carries what is written to wherever its own output goes, and gives a terminal for that: Open MPI's
/// mpirun, and others with PMI or PMIx. A terminal that Slurm makes for a user (`srun --pty`) is not meant.
pub(crate) fn is_relayed(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    !is_set("SLURM_PTY_PORT") && ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"].into_iter().any(is_set)
}

impl ColorArg {
    fn resolve(self, env: &OutputEnv) -> ColorChoice {
        match self {
            Self::Auto => env.color(),
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        }
    }

    /// Whether it means colours here.
    pub(crate) fn holds_for(self, console: &impl IsTerminal, env: &OutputEnv) -> bool {
        has_colors(self.resolve(env), console)
    }
}

fn has_colors(choice: ColorChoice, console: &impl IsTerminal) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => console.is_terminal(),
    }
}

/// What the arguments mean.
pub(crate) fn resolve(
    args: &OutputArgs,
    local_world_size: usize,
    env: &OutputEnv,
) -> Result<OutputPlan, RankFilterError> {
    let ranks = args.local_ranks_filter.as_ref().map(|typed| &typed.value.0);
    if let Some(rank) = ranks.and_then(|ranks| ranks.iter().find(|rank| **rank >= local_world_size)) {
        let ranks = args.local_ranks_filter.as_ref().map_or_else(String::new, |typed| typed.text.clone());
        return Err(RankFilterError { ranks, rank: *rank, size: local_world_size });
    }
    let texts = |lists: &[TextList]| {
        let texts: Vec<String> = lists.iter().flat_map(|TextList(texts)| texts.clone()).collect();
        (!texts.is_empty()).then_some(texts)
    };
    Ok(OutputPlan {
        template: args.log_line_prefix_template.clone().unwrap_or_default(),
        progress: match args.progress {
            ProgressArg::Raw => Progress::Raw,
            ProgressArg::Latest if !env.is_dumb() => Progress::Latest,
            ProgressArg::Latest | ProgressArg::Off => Progress::Off,
        },
        color: args.color.resolve(env),
        pty: args.pty,
        local_ranks_filter: ranks.cloned(),
        stdout_filters: texts(&args.duplicate_stdout_filters),
        stderr_filters: texts(&args.duplicate_stderr_filters),
    })
}

impl OutputPlan {
    /// Tells a group how its lines are shown.
    pub(crate) fn apply(&self, group: WorkerGroup) -> WorkerGroup {
        let group = group.log_line_prefix_template(self.template.clone()).progress(self.progress).color(self.color);
        let group = group.pty(self.pty);
        let group = match &self.stdout_filters {
            Some(texts) => group.duplicate_stdout_filters(texts),
            None => group,
        };
        match &self.stderr_filters {
            Some(texts) => group.duplicate_stderr_filters(texts),
            None => group,
        }
    }

    /// Whether what rankrun itself says on standard error has colours.
    pub(crate) fn colors_stderr(&self) -> bool {
        has_colors(self.color, &std::io::stderr())
    }

    /// Filters that get no line because nothing is teed that they are for.
    pub(crate) fn idle_filters(&self, tees_stdout: bool, tees_stderr: bool) -> Vec<String> {
        let idle = |option: &str, stream: &str| {
            format!("{option} has no effect: the {stream} of no rank that is shown is teed (see --tee)")
        };
        let mut warnings = Vec::new();
        if self.stdout_filters.is_some() && !tees_stdout {
            warnings.push(idle("--duplicate-stdout-filters", "stdout"));
        }
        if self.stderr_filters.is_some() && !tees_stderr {
            warnings.push(idle("--duplicate-stderr-filters", "stderr"));
        }
        warnings
    }
}

/// Splits at commas, as torchrun does. Two commas, or one after a backslash, are a comma in a text; any other backslash is
/// itself.
fn parse_filters(text: &str) -> Result<TextList, String> {
    let mut texts = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, texts.last_mut()) {
            (',', Some(last)) if rest.next_if_eq(&',').is_some() => last.push(','),
            (',', _) => texts.push(String::new()),
            ('\\', Some(last)) => last.push(rest.next_if_eq(&',').unwrap_or('\\')),
            (c, Some(last)) => last.push(c),
            (_, None) => {}
        }
    }
    if texts.iter().any(String::is_empty) {
        return Err(
            "expected one or more texts separated by commas, none of them empty, such as loss,error (`\\,` is a comma)"
                .to_owned(),
        );
    }
    Ok(TextList(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(no_color: Option<&str>, clicolor_force: Option<&str>, term: &str) -> OutputEnv {
        OutputEnv {
            no_color: no_color.map(Into::into),
            clicolor_force: clicolor_force.map(Into::into),
            term: Some(term.into()),
            relayed: false,
        }
    }

    #[test]
    fn a_terminal_of_mpirun_is_relayed_and_has_colours_only_if_asked_for() {
        let relayed = |set: &[&str]| is_relayed(|name| set.contains(&name).then(|| "1".into()));
        assert!(relayed(&["OMPI_COMM_WORLD_RANK"]) && relayed(&["PMI_RANK"]) && relayed(&["PMIX_RANK"]));
        assert!(!relayed(&[]) && !relayed(&["SLURM_PROCID"]) && !relayed(&["PMIX_RANK", "SLURM_PTY_PORT"]));
        let env = OutputEnv { relayed: true, ..env(None, None, "xterm") };
        let with = |color| resolve(&OutputArgs { color, ..OutputArgs::default() }, 1, &env).unwrap();
        assert_eq!((with(ColorArg::Auto).color, with(ColorArg::Auto).progress), (ColorChoice::Never, Progress::Off));
        assert_eq!(with(ColorArg::Always).color, ColorChoice::Always);
    }

    #[test]
    fn auto_colour_listens_to_the_environment_and_the_argument_beats_it() {
        for (env, expected) in [
            (env(None, None, "xterm"), ColorChoice::Auto),
            (env(Some(""), None, "xterm"), ColorChoice::Auto),
            (env(Some("1"), Some("1"), "xterm"), ColorChoice::Never),
            (env(None, Some("1"), "dumb"), ColorChoice::Always),
            (env(None, Some("0"), "xterm"), ColorChoice::Auto),
            (env(None, None, "dumb"), ColorChoice::Never),
        ] {
            assert_eq!(resolve(&OutputArgs::default(), 1, &env).unwrap().color, expected, "{env:?}");
            let always = OutputArgs { color: ColorArg::Always, ..OutputArgs::default() };
            assert_eq!(resolve(&always, 1, &env).unwrap().color, ColorChoice::Always);
        }
    }

    #[test]
    fn a_terminal_that_cannot_erase_gets_no_live_progress() {
        let progress = |term| resolve(&OutputArgs::default(), 1, &env(None, None, term)).unwrap().progress;
        assert_eq!((progress("xterm"), progress("dumb")), (Progress::Latest, Progress::Off));
    }

    #[test]
    fn a_filter_for_a_rank_that_does_not_exist_is_refused() {
        let args = OutputArgs { local_ranks_filter: Some("0, 2-4".parse().unwrap()), ..OutputArgs::default() };
        assert_eq!(
            resolve(&args, 4, &OutputEnv::default()).unwrap_err().to_string(),
            "invalid value '0, 2-4' for '--local-ranks-filter': there is no rank 4: expected 0 to 3"
        );
        assert!(resolve(&args, 5, &OutputEnv::default()).is_ok());
    }

    #[test]
    fn filters_are_split_at_commas_but_not_at_escaped_ones() {
        for (text, expected) in [
            ("a,b", &["a", "b"][..]),
            (r"loss=0\,5,x", &["loss=0,5", "x"]),
            (r"\,", &[","]),
            ("a,,b,c,,,d", &["a,b", "c,", "d"]),
            (r"C:\dir\\,b\", &[r"C:\dir\,b\"]),
        ] {
            assert_eq!(parse_filters(text).unwrap().0, expected, "{text}");
        }
        for wrong in ["", ",", "a,", ",a", r"\,,"] {
            assert!(parse_filters(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_filter_that_is_repeated_adds_its_texts() {
        let lists = ["a,b", r"c\,d"].map(|text| parse_filters(text).unwrap());
        let args = OutputArgs { duplicate_stderr_filters: lists.to_vec(), ..OutputArgs::default() };
        let plan = resolve(&args, 1, &OutputEnv::default()).unwrap();
        assert_eq!(
            (plan.stdout_filters, plan.stderr_filters.unwrap()),
            (None, vec!["a".into(), "b".into(), "c,d".into()])
        );
    }

    #[test]
    fn a_filter_without_a_teed_stream_is_told_of() {
        let args =
            OutputArgs { duplicate_stdout_filters: vec![parse_filters("a,b").unwrap()], ..OutputArgs::default() };
        let plan = resolve(&args, 1, &OutputEnv::default()).unwrap();
        assert_eq!(plan.idle_filters(true, false), Vec::<String>::new());
        assert_eq!(plan.idle_filters(false, true).len(), 1);
    }
}

//! Tests of the tail engine's pure core, against a slow and obvious model.

use proptest::prelude::*;

use super::super::trail::{Found, Trail};
use super::*;
use crate::lines::model;
use crate::lines::tests::{shapes, streams};

/// What may happen to a core; the numbers are reduced to what exists.
#[derive(Debug, Clone)]
enum Step {
    /// A worker writes to its file.
    Append(usize, Vec<u8>),
    /// The engine reads up to so many bytes from whoever is next.
    Read(usize),
    /// The console takes up to so many bytes.
    Write(usize, usize),
    Close(usize),
    /// Somebody cuts a file to nothing, as copytruncate does, and these bytes are written to it before it is looked at.
    Cut(usize, Vec<u8>),
    /// Time has come to draw in a terminal's last row.
    Draw,
    /// The status of so many seconds.
    Status(u8),
}

/// Output 0 is a terminal, output 1 is not.
const LIVE: [bool; 2] = [true, false];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        9 => streams(),
        1 => (0..3 * HIGH_WATER).prop_map(|n| vec![b'x'; n]),
    ]
    .boxed();
    let step = prop_oneof![
        40 => (any::<usize>(), bytes.clone()).prop_map(|(source, bytes)| Step::Append(source, bytes)),
        30 => (1..100_000_usize).prop_map(Step::Read),
        30 => (any::<usize>(), 0..100_000_usize).prop_map(|(output, n)| Step::Write(output, n)),
        1 => any::<usize>().prop_map(Step::Close),
        3 => any::<usize>().prop_map(|source| Step::Cut(source, Vec::new())),
        3 => (any::<usize>(), bytes).prop_map(|(source, bytes)| Step::Cut(source, bytes)),
        20 => Just(Step::Draw),
        3 => any::<u8>().prop_map(Step::Status),
    ];
    prop::collection::vec(step, 0..60)
}

/// Files and consoles in memory around a core.
struct World {
    core: TailCore,
    files: Vec<Vec<u8>>,
    /// What was read of each file before it was found cut, each time.
    cut: Vec<Vec<Vec<u8>>>,
    /// What was read of each file since then, as it came.
    fed: Vec<Vec<u8>>,
    /// The same part of the file as it was at the last read.
    known: Vec<Vec<u8>>,
    trails: Vec<Trail>,
    shown: Vec<Vec<u8>>,
}

/// Whether a file of which this was read must have been cut since: it is shorter, or it has others among the last 64 bytes.
fn was_cut(known: &[u8], file: &[u8]) -> bool {
    file.len() < known.len()
        || (known.len().saturating_sub(64)..known.len())
            .any(|at| known[at] != 0 && file[at] != 0 && known[at] != file[at])
}

impl World {
    fn new(sources: Vec<CoreSource>) -> Self {
        let count = sources.len();
        Self {
            core: TailCore::new(sources, &LIVE),
            files: vec![Vec::new(); count],
            cut: vec![Vec::new(); count],
            fed: vec![Vec::new(); count],
            known: vec![Vec::new(); count],
            trails: vec![Trail::new(); count],
            shown: vec![Vec::new(); LIVE.len()],
        }
    }

    fn read(&mut self, limit: usize) -> bool {
        let Some(source) = self.core.next_source() else {
            assert!(!self.core.has_work());
            return false;
        };
        let start = self.fed[source].len();
        let from = start - self.trails[source].len();
        let end = self.files[source].len().min(start + limit);
        let found = self.files[source].get(from..end).unwrap_or_default();
        let cut = was_cut(&self.known[source], &self.files[source]);
        match self.trails[source].find(found) {
            Found::Next(bytes) => {
                assert!(!cut);
                self.core.feed(source, bytes, || SystemTime::UNIX_EPOCH);
                self.fed[source].extend_from_slice(bytes);
                self.trails[source].follow(found);
                self.known[source] = self.files[source][..end].to_vec();
                if end == self.files[source].len() {
                    self.core.mark_clean(source);
                }
            }
            Found::Other | Found::Short => {
                assert!(cut);
                self.trails[source] = Trail::new();
                self.known[source].clear();
                self.cut[source].push(std::mem::take(&mut self.fed[source]));
                self.core.finish_line(source);
            }
        }
        true
    }

    fn write(&mut self, output: usize, limit: usize) {
        let pending = self.core.pending(output);
        let count = pending.len().min(limit);
        self.shown[output].extend_from_slice(&pending[..count]);
        self.core.wrote(output, count);
    }
}

fn prefix(source: usize) -> Vec<u8> {
    format!("<{source}>").into_bytes()
}

fn source(number: usize, output: usize, shape: Shape) -> CoreSource {
    CoreSource { prefix: prefix(number).into(), colored: false, pad: 0, shape, output }
}

fn plain(outputs_of: &[usize]) -> TailCore {
    let source = |output: &usize| CoreSource { prefix: "".into(), ..source(0, *output, Shape::default()) };
    let sources = outputs_of.iter().map(source);
    TailCore::new(sources.collect(), &LIVE)
}

/// The lines of a console that begin with a source's prefix; what the source wrote stands behind a prefix.
fn lines_of(shown: &[u8], source: usize) -> Vec<u8> {
    shown
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(&prefix(source)))
        .flatten()
        .copied()
        .collect()
}

/// What stays of a terminal's bytes: the frames of its last row are erased by what follows.
fn without_rows(shown: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut rest = shown;
    while !rest.is_empty() {
        rest = rest.strip_prefix(row::ERASE).unwrap_or(rest);
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        let line_end = rest[end..].iter().position(|byte| *byte != b'\r').map_or(rest.len(), |at| end + at);
        if rest.get(line_end) == Some(&b'\n') {
            lines.extend_from_slice(&rest[..=line_end]);
            rest = &rest[line_end + 1..];
        } else {
            rest = &rest[line_end..];
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_line_is_shown_once_whole_prefixed_and_in_its_ranks_order(
        sources in prop::collection::vec((0..2_usize, shapes()), 1..5),
        steps in steps(),
    ) {
        let sources: Vec<CoreSource> = sources
            .into_iter()
            .enumerate()
            // Where progress bars live, nothing but their last state is in a line.
            .map(|(i, (output, shape))| source(i, output, Shape { frames: shape.frames || LIVE[output], ..shape }))
            .collect();
        let mut world = World::new(sources.clone());
        for step in steps {
            match step {
                Step::Append(source, bytes) => {
                    let source = source % world.files.len();
                    world.files[source].extend_from_slice(&bytes);
                    world.core.mark_dirty(source);
                }
                Step::Read(limit) => {
                    world.read(limit);
                }
                Step::Write(output, limit) => world.write(output % 2, limit),
                Step::Close(output) => world.core.close(output % 2),
                Step::Cut(source, bytes) => {
                    let source = source % world.files.len();
                    world.files[source] = bytes;
                    world.core.mark_dirty(source);
                }
                Step::Draw => world.core.draw(0, 40),
                Step::Status(seconds) => world.core.set_status(0, &format!("running {seconds} s")),
            }
            // Bounded: the high water mark, a chunk, and prefixes and resets of at most seven bytes for each byte of it.
            prop_assert!((0..2).all(|output| world.core.pending(output).len() <= HIGH_WATER + 900_000));
        }
        loop {
            world.write(0, usize::MAX);
            world.write(1, usize::MAX);
            if !world.read(usize::MAX / 2) {
                break;
            }
        }
        for source in 0..world.files.len() {
            world.core.finish_line(source);
        }
        world.core.clear_status(0);
        world.write(0, usize::MAX);
        world.write(1, usize::MAX);

        world.shown[0] = without_rows(&world.shown[0]);
        let mut total = [0; 2];
        for (number, CoreSource { output, shape, .. }) in sources.into_iter().enumerate() {
            // What was read before each cut, as lines of its own, and what is there now.
            prop_assert!(world.core.is_closed(output) || world.fed[number].len() == world.files[number].len());
            let parts = world.cut[number].iter().chain([&world.fed[number]]);
            let want = parts.flat_map(|part| model(part, &prefix(number), &shape)).collect::<Vec<u8>>();
            total[output] += want.len();
            let got = lines_of(&world.shown[output], number);
            if world.core.is_closed(output) {
                // Cut where the console went away, perhaps in the middle of a line, but nothing else.
                prop_assert!(want.starts_with(&got));
            } else {
                prop_assert!(got == want, "source {number}");
            }
        }
        for (output, total) in total.into_iter().enumerate() {
            prop_assert!(world.core.is_closed(output) || world.shown[output].len() == total);
        }
    }
}

#[test]
fn a_rank_that_always_has_more_does_not_starve_the_others() {
    let mut core = plain(&[0, 0, 0]);
    (0..3).for_each(|source| core.mark_dirty(source));
    let turns: Vec<_> = (0..6).map(|_| core.next_source()).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2].map(Some));
}

#[test]
fn a_full_output_stops_its_own_sources_only_and_they_go_on_where_they_stopped() {
    let mut core = plain(&[0, 1, 0]);
    (0..3).for_each(|source| core.mark_dirty(source));
    assert_eq!(core.next_source(), Some(0));
    core.feed(0, &[b'\n'; HIGH_WATER], || SystemTime::UNIX_EPOCH);
    assert_eq!((core.next_source(), core.next_source()), (Some(1), Some(1)));
    core.mark_clean(1);
    assert_eq!((core.next_source(), core.has_work()), (None, false));
    core.wrote(0, 1);
    assert_eq!(core.next_source(), Some(2));
}

#[test]
fn a_closed_output_takes_nothing_and_holds_nothing() {
    let mut core = plain(&[0]);
    core.mark_dirty(0);
    core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH);
    core.close(0);
    core.feed(0, b"b\n", || SystemTime::UNIX_EPOCH);
    assert_eq!(core.pending(0), b"");
    assert_eq!(core.next_source(), None);
}
#[test]
fn a_source_is_not_read_before_its_process_is_known() {
    let pid: crate::PrefixTemplate = "${pid}:".parse().unwrap();
    let values = crate::PrefixValues { role_name: "", local_rank: 0, rank: "", hostname: "", stream: "" };
    let mut core =
        TailCore::new(vec![CoreSource { prefix: pid.prefix(values), ..source(0, 1, Shape::default()) }], &LIVE);
    core.mark_dirty(0);
    assert_eq!((core.next_source(), core.has_work()), (None, false));
    core.set_pid(0, Some(42));
    assert_eq!((core.next_source(), core.has_work()), (Some(0), true));
    core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH);
    assert_eq!(core.pending(1), b"42:a\n");
}

#[test]
fn each_chunk_has_its_time() {
    let time: crate::PrefixTemplate = "${time} ".parse().unwrap();
    let values = crate::PrefixValues { role_name: "", local_rank: 0, rank: "", hostname: "", stream: "" };
    let mut core =
        TailCore::new(vec![CoreSource { prefix: time.prefix(values), ..source(0, 1, Shape::default()) }], &LIVE);
    for second in [1, 2] {
        core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second));
    }
    assert_eq!(core.pending(1), b"1970-01-01T00:00:01.000Z a\n1970-01-01T00:00:02.000Z a\n");
}

#[test]
fn the_newest_frame_lives_in_the_last_row_until_a_line_takes_its_place() {
    let frames = Shape { frames: true, ..Shape::default() };
    let mut core = TailCore::new(vec![source(0, 0, frames.clone()), source(1, 0, frames)], &LIVE);
    let now = || SystemTime::UNIX_EPOCH;
    let take = |core: &mut TailCore| {
        let taken = core.pending(0).escape_ascii().to_string();
        core.wrote(0, core.pending(0).len());
        taken
    };
    core.feed(0, b"\r10%\r20%", now);
    assert!(core.wants_draw(0));
    core.draw(0, 80);
    assert!(!core.wants_draw(0), "nothing is drawn while something waits to be written");
    assert_eq!(take(&mut core), "\\x1b[K<0>20%\\r");
    core.feed(1, b"line\n", now);
    assert_eq!(take(&mut core), "\\x1b[K<1>line\\n");
    core.draw(0, 80);
    assert_eq!(take(&mut core), "\\x1b[K<0>20%\\r");
    core.feed(0, b"\r100%\n", now);
    assert_eq!(take(&mut core), "\\x1b[K<0>100%\\n");
    assert!(!core.wants_draw(0));
    core.feed(1, b"half a line", now);
    assert!(!core.wants_draw(0), "an unfinished line is no frame");
}

//! Pure code: the parser of redirect specs and the line splitter.

#![forbid(unsafe_code)]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use rankrun::StdSpec;
use rankrun::crates::logs::LineSplitter;
use rankrun_benches::Options;

const CHUNK: usize = 64 * 1024;
const LINE: usize = 100;

fn parse(criterion: &mut Criterion) {
    let mut long = String::from("default:none");
    for local_rank in 0..256 {
        // Writing to a string cannot fail.
        let _ = write!(long, ",{local_rank}:{}", ["out", "err", "3"][local_rank % 3]);
    }
    let mut group = criterion.benchmark_group("StdSpec::parse_mapping");
    for (name, text) in [("typical", "0:out,1-3:all,default:err"), ("256 ranks", long.as_str())] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| StdSpec::parse_mapping(black_box(text))));
    }
    group.finish();
}

fn split(criterion: &mut Criterion) {
    let mut line = [b'x'; LINE];
    line[LINE - 1] = b'\n';
    let chunk: Vec<u8> = line.iter().copied().cycle().take(CHUNK).collect();
    let mut group = criterion.benchmark_group("LineSplitter::push");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    group.bench_function("64 KiB of 100-byte lines", |bencher| {
        let mut splitter = LineSplitter::new();
        let mut out = Vec::new();
        bencher.iter(|| {
            out.clear();
            splitter.push(black_box(&chunk), b"[trainer0]:", &mut out);
            black_box(out.len())
        });
    });
    group.finish();
}

fn main() {
    // `cargo bench -- --check` gives all benchmarks the same options; those of the others criterion would refuse.
    let mut criterion = match Options::parse(std::env::args().skip(1)) {
        Ok(Options { measure: true, rounds, check, filters }) if check || rounds.is_some() => {
            filters.into_iter().fold(Criterion::default(), Criterion::with_filter)
        }
        _ => Criterion::default().configure_from_args(),
    };
    parse(&mut criterion);
    split(&mut criterion);
    criterion.final_summary();
}

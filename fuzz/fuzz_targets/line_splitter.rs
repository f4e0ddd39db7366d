//! The line splitter on any bytes in any chunks: the same output as in one chunk, each byte there once and in order.
//! Not here: where a long line is split (its unit tests).
#![no_main]

use libfuzzer_sys::fuzz_target;
use rankrun_logs::{CONTINUES, LineSplitter};

const PREFIX: &[u8] = b"[r0]:";

fn split<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut splitter, mut out) = (LineSplitter::new(), Vec::new());
    for chunk in chunks {
        splitter.push(chunk, PREFIX, &mut out);
    }
    splitter.finish(PREFIX, &mut out);
    out
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (size, bytes) = input;
    let whole = split(std::iter::once(&bytes[..]));
    assert_eq!(whole, split(bytes.chunks(usize::from(size) + 1)));
    if bytes.len() < rankrun_logs::MAX_LINE && !bytes.windows(CONTINUES.len()).any(|window| window == CONTINUES) {
        let mut shown = Vec::new();
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            shown.extend_from_slice(line.strip_prefix(PREFIX).expect("each line has its prefix"));
        }
        let mut expected = bytes.clone();
        if bytes.last().is_some_and(|byte| *byte != b'\n') {
            expected.push(b'\n');
        }
        assert_eq!(shown, expected);
    }
});

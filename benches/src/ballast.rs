//! Memory that makes the parent large: [`Ballast`].

/// Heap of which each page has been written to, so that it has page table entries.
#[derive(Debug)]
pub struct Ballast(Vec<u8>);

impl Ballast {
    /// Takes and touches this many bytes; dropping it gives them back to the kernel.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        // Not zero: zeroed memory comes untouched from the kernel.
        Self(std::hint::black_box(vec![1; bytes]))
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_pages_are_resident_while_it_lives() {
        let resident_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap()
        };
        let before = resident_kib();
        let ballast = Ballast::new(256 << 20);
        assert_eq!(ballast.size(), 256 << 20);
        // Other tests of this process take and give back memory meanwhile, but not that much.
        assert!(resident_kib() > before + (128 << 10));
        drop(ballast);
        assert!(resident_kib() < before + (128 << 10));
    }
}

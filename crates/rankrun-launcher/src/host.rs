//! This host's name, as other hosts may know it: [`host_name`]. The only look at the system that a topology needs.

use std::fs;

/// The name of this host, with its domain where `/etc/hosts` has it, as in a pod of a headless service; `localhost` where
/// the kernel does not say. Reads two small files.
#[must_use]
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = match name.trim() {
        "" => return "localhost".to_owned(),
        name => name.to_owned(),
    };
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    with_domain(&name, &hosts).unwrap_or(name)
}

/// The first name of a line of hosts(5) that is this one with a domain.
fn with_domain(name: &str, hosts: &str) -> Option<String> {
    if name.contains('.') {
        return None;
    }
    let names = hosts.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace().skip(1));
    let mut long = names.filter(|long| long.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')));
    long.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_taken_from_the_hosts_file() {
        let hosts =
            "127.0.0.1 localhost\n# 10.0.0.1 job-3.no\n10.2.3.4 job-3.svc.ns.svc.cluster.local job-3 # job-3.no\n";
        assert_eq!(with_domain("job-3", hosts).as_deref(), Some("job-3.svc.ns.svc.cluster.local"));
        assert_eq!(with_domain("job", hosts), None);
        assert_eq!(with_domain("job-3.other", hosts), None);
        assert!(!host_name().is_empty());
    }
}

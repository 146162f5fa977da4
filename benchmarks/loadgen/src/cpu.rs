//! CPU time of this process, so that a report can tell when the generator was the bottleneck.

use std::fs;

/// Clock ticks a second of `/proc/<pid>/stat`: `USER_HZ`, 100 on every Linux architecture.
const TICKS_PER_S: f64 = 100.0;
/// `utime` and `stime` are fields 14 and 15; counted from the first one after the name in
/// parentheses (field 3) they have these indices.
const UTIME_INDEX: usize = 11;

/// User and system time of the whole process in seconds, `None` where `/proc` is missing.
pub fn process_cpu_s() -> Option<f64> {
    parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn parse_stat(stat: &str) -> Option<f64> {
    // The name may hold spaces and parentheses; the last closing one ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(UTIME_INDEX);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_anything() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194560 99 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(Some(3.0), parse_stat(stat));
    }

    #[test]
    fn a_short_line_is_no_reading() {
        assert_eq!(None, parse_stat("7 (a) R 1"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_a_reading() {
        assert!(process_cpu_s().is_some_and(|seconds| seconds >= 0.0));
    }
}

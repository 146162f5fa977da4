//! What benches that measure in rounds say of them.

/// Percentiles of each round, and of these the medians; and the spread of the slowest hundredth.
/// Members of a JSON object. Each round is in order and not empty.
pub(crate) fn percentiles_json(rounds: &[Vec<u64>]) -> String {
    let over_rounds = |of_1000: usize| {
        let at = |values: &Vec<u64>| values[(values.len() - 1) * of_1000 / 1000];
        let mut found: Vec<u64> = rounds.iter().map(at).collect();
        found.sort_unstable();
        found
    };
    let middle = rounds.len() / 2;
    let names = [("p50", 500), ("p99", 990), ("p99.9", 999), ("max", 1000)];
    let medians =
        names.map(|(name, of_1000)| format!("\"{name}\": {}", over_rounds(of_1000)[middle]));
    let p99 = over_rounds(990);
    let spread = format!("\"p99_least\": {}, \"p99_most\": {}", p99[0], p99[rounds.len() - 1]);
    format!("{}, {spread}", medians.join(", "))
}

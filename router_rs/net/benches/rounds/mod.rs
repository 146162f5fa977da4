//! Shared by the benches that measure in rounds: selection, statistics and output.

use router_core::PolicyKind;

/// Those whose names are arguments of the bench; without any, all.
pub(crate) fn policies() -> Vec<PolicyKind> {
    let arguments: Vec<String> = std::env::args().collect();
    let is_named = |policy: &PolicyKind| arguments.contains(&format!("{policy:?}"));
    let named: Vec<PolicyKind> = PolicyKind::ALL.into_iter().filter(is_named).collect();
    if named.is_empty() { PolicyKind::ALL.to_vec() } else { named }
}

/// Percentiles of each round, the medians of these, and the spread of the slowest hundredth, as
/// members of a JSON object. Each round must be sorted and not empty.
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

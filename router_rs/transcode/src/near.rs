//! Finds the known name that was most likely meant.

/// Longer names get no suggestion: comparing them costs the product of their lengths.
const LENGTH_MAX: usize = 128;

/// The number of letters per allowed edit; with more edits it is another name. Arbitrary.
const LETTERS_PER_EDIT: usize = 3;

/// The name of `known` that is fewest edits from `wanted`, case apart, and that `may_tell` takes,
/// which is asked of near ones only; `None`: there is none. Of equally near ones the first in order.
pub(crate) fn nearest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    may_tell: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    let letters = lowered(wanted);
    let edits_max = letters.len().div_ceil(LETTERS_PER_EDIT);
    if letters.len() > LENGTH_MAX {
        return None;
    }
    let near = known.into_iter().filter_map(|name| {
        let other = lowered(name);
        let is_close = letters.len().abs_diff(other.len()) <= edits_max;
        let edits = is_close.then(|| edits_between(&letters, &other))?;
        (edits <= edits_max).then_some((edits, name))
    });
    let mut near: Vec<(usize, &str)> = near.collect();
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).find(|name| may_tell(name))
}

fn lowered(name: &str) -> Vec<char> {
    name.chars().map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The number of letters to insert, delete, replace, or swap with their neighbour (the restricted
/// distance of Damerau and Levenshtein).
fn edits_between(one: &[char], other: &[char]) -> usize {
    let mut before = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for (to, candidate) in other.iter().enumerate() {
            let exchanged = row[to] + usize::from(letter != candidate);
            let mut edits = exchanged.min(row[to + 1] + 1).min(next[to] + 1);
            let is_swap = at > 0 && to > 0 && *letter == other[to - 1] && one[at - 1] == *candidate;
            if is_swap {
                edits = edits.min(before[to - 1] + 1);
            }
            next.push(edits);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_another_name_finds_none() {
        let known = ["Echo", "Get", "List", "Collect", "smallCount"];
        for (wanted, expected) in [
            ("Ehco", Some("Echo")),
            ("echo", Some("Echo")),
            ("Ech", Some("Echo")),
            ("Collects", Some("Collect")),
            ("small_count", Some("smallCount")),
            ("Get", Some("Get")),
            ("Delete", None),
            ("", None),
        ] {
            assert_eq!(expected, nearest(wanted, known, &|_| true), "{wanted}");
        }
        let long = "a".repeat(LENGTH_MAX + 1);
        assert_eq!(None, nearest(&long, [&*long], &|_| true));
        assert_eq!(Some("Eco"), nearest("Ech", ["Echo", "Eco"], &|name| name != "Echo"));
    }

    #[test]
    fn edits_are_counted_as_in_the_textbook() {
        let edits = |one: &str, other: &str| edits_between(&lowered(one), &lowered(other));
        assert_eq!((3, 3), (edits("kitten", "sitting"), edits("sitting", "kitten")));
        assert_eq!((0, 4), (edits("", ""), edits("", "four")));
        assert_eq!((1, 2, 3), (edits("nmae", "name"), edits("nmae", "made"), edits("ca", "abc")));
    }
}

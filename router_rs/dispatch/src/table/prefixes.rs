//! Route prefixes of plain HTTP: finds the longest one that matches a path by whole segments.

use std::collections::HashMap;

/// Prefixes with their destinations. `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`; `/`
/// matches every path. Paths are compared as sent: neither decoded nor normalized.
#[derive(Debug)]
pub(super) struct Prefixes<T> {
    /// Without a trailing slash, so `/` is the empty one.
    by_prefix: HashMap<Box<str>, T>,
    /// Segments of the longest prefix, which bounds the look-ups of a hostile path.
    depth_max: usize,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { by_prefix: HashMap::new(), depth_max: 0 }
    }
}

impl<T> Prefixes<T> {
    /// Adds a prefix; the first one of two equal ones stays.
    pub(super) fn insert(&mut self, prefix: &str, value: T) {
        self.get_or_insert_with(prefix, || value);
    }

    /// The value of exactly this prefix.
    pub(super) fn get_or_insert_with(&mut self, prefix: &str, value: impl FnOnce() -> T) -> &mut T {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        self.depth_max = self.depth_max.max(prefix.matches('/').count());
        self.by_prefix.entry(prefix.into()).or_insert_with(value)
    }

    /// The longest prefix of `path`, without a trailing slash.
    pub(super) fn find(&self, path: &str) -> Option<(&str, &T)> {
        if !path.starts_with('/') {
            return None;
        }
        // The ends of segments, from the left, up to the length of the longest prefix.
        let ends = path.match_indices('/').map(|(index, _)| index);
        let ends = ends.chain(std::iter::once(path.len())).take(self.depth_max + 1);
        let mut found = None;
        for end in ends {
            found = self.by_prefix.get_key_value(&path[..end]).or(found);
        }
        found.map(|(prefix, value)| (&**prefix, value))
    }

    pub(super) fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// All prefixes as they are written (`/` for the empty one), in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.by_prefix.iter().map(|(prefix, value)| {
            let written = if prefix.is_empty() { "/" } else { &**prefix };
            (written, value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(prefixes: &[&'static str]) -> Prefixes<&'static str> {
        let mut all = Prefixes::default();
        for prefix in prefixes {
            all.insert(prefix, *prefix);
        }
        all
    }

    #[test]
    fn the_longest_prefix_by_segments_wins() {
        let all = of(&["/", "/a", "/a/b", "/long"]);
        for (path, expected) in [
            ("/", "/"),
            ("/x", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/ab", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/c/d/e", "/a/b"),
            ("/a/bc", "/a"),
            ("//a", "/"),
            ("/a//b", "/a"),
            ("/A", "/"),
        ] {
            assert_eq!(Some(expected), all.find(path).map(|(_, value)| *value), "{path}");
        }
    }

    #[test]
    fn without_a_root_other_paths_lead_nowhere() {
        let all = of(&["/a/b"]);
        for path in ["/", "/a", "/a/", "/a/bb", "*", "", "a/b"] {
            assert_eq!(None, all.find(path), "{path}");
        }
        assert_eq!(Some(("/a/b", &"/a/b")), all.find("/a/b"));
        assert_eq!(None, of(&[]).find("/"));
    }

    #[test]
    fn of_two_equal_prefixes_the_first_stays() {
        let mut all = Prefixes::default();
        all.insert("/a", 1);
        all.insert("/a/", 2);
        assert_eq!(Some(("/a", &1)), all.find("/a"));
        assert_eq!(1, all.len());
        assert_eq!(vec![("/a", &1)], all.iter().collect::<Vec<_>>());
    }

    /// The documented rule, implemented in the slow way.
    fn slowly<'a>(prefixes: &'a [String], path: &str) -> Option<&'a str> {
        let holds = |prefix: &&String| {
            let stem = prefix.trim_end_matches('/');
            path == stem || path.starts_with(&format!("{stem}/"))
        };
        prefixes.iter().filter(holds).max_by_key(|prefix| prefix.len()).map(String::as_str)
    }

    proptest! {
        #[test]
        fn a_look_up_finds_what_a_search_through_all_finds(
            prefixes in proptest::collection::btree_set("/|(/[ab]{1,2}){1,4}", 0..8),
            path in "(/[ab]{0,2}){1,6}",
        ) {
            let prefixes: Vec<String> = prefixes.into_iter().collect();
            let mut all = Prefixes::default();
            for prefix in &prefixes {
                all.insert(prefix, prefix.clone());
            }
            let found = all.find(&path).map(|(_, value)| value.as_str());
            prop_assert_eq!(slowly(&prefixes, &path), found);
        }
    }
}

//! The fields of a scenario file, `name = value` one a line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The lines of a file by name.
pub(super) struct Fields(BTreeMap<String, String>);

// === impl Fields ===

impl Fields {
    pub(super) fn of(text: &str) -> Self {
        let mut fields = BTreeMap::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (name, value) = line
                .split_once('=')
                .unwrap_or_else(|| panic!("{line}: this is not `name = value`"));
            let known = fields.insert(name.trim().to_owned(), value.trim().to_owned());
            assert!(known.is_none(), "{line}: said twice");
        }
        Self(fields)
    }

    pub(super) fn number<T: FromStr<Err: Display>>(&mut self, name: &str, field: &mut T) {
        if let Some(text) = self.0.remove(name) {
            let value = text.parse();
            *field = value.unwrap_or_else(|error| panic!("{name} = {text}: {error}"));
        }
    }

    pub(super) fn list(&mut self, name: &str, field: &mut Vec<f64>) {
        if let Some(text) = self.0.remove(name) {
            let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let inside = inside.unwrap_or_else(|| panic!("{name} = {text}: no list"));
            let parse = |item: &str| {
                item.trim().parse().unwrap_or_else(|error| panic!("{name} = {text}: {error}"))
            };
            *field = inside.split(',').map(parse).collect();
        }
    }

    pub(super) fn word<T>(
        &mut self,
        name: &str,
        field: &mut T,
        meaning: impl Fn(&str) -> Option<T>,
    ) {
        if let Some(text) = self.0.remove(name) {
            *field = meaning(text.trim_matches('"'))
                .unwrap_or_else(|| panic!("{name} = {text}: unknown"));
        }
    }

    pub(super) fn finish(self) {
        assert!(self.0.is_empty(), "nobody knows these fields: {:?}", self.0);
    }
}

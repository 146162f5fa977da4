//! The line that says why a call went where it went, for clients that ask for it.

use http::{HeaderMap, HeaderName, HeaderValue};
use router_core::{Explanation, ReplicaId};

/// Request metadatum `1`: the answer says, under the same name, what the router saw and chose.
pub(super) const EXPLAIN: HeaderName = HeaderName::from_static("x-pyserve-explain");

/// What the router saw when the call came.
#[derive(Debug)]
pub(super) struct Explained {
    pub seen: Explanation,
    /// What replicas are called outside.
    pub names: Vec<(ReplicaId, String)>,
}

/// Whether the request asks for it.
#[inline]
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    headers.get(EXPLAIN).is_some_and(|value| value == "1")
}

impl Explained {
    /// One line of JSON: what was seen, and where the call went in the end.
    pub(super) fn line(&self, chosen: &str) -> HeaderValue {
        let chosen = self.names.iter().find(|(_, name)| name == chosen).map(|(id, _)| *id);
        let name_of = |id: ReplicaId| {
            let known = self.names.iter().find(|(known, _)| *known == id);
            known.map_or_else(String::new, |(_, name)| name.clone())
        };
        let text = in_ascii(&self.seen.to_json(chosen, name_of));
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("{}"))
    }
}

/// Names may hold anything; JSON may write all of it in ASCII.
fn in_ascii(json: &str) -> String {
    let escaped = |character: char| -> String {
        if character.is_ascii() {
            return character.into();
        }
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat()
    };
    json.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_in_ascii() {
        let seen =
            Explanation { rule: "least", waiting: 3, predicted_wait: None, replicas: Vec::new() };
        let explained = Explained { seen, names: vec![(ReplicaId(7), "rä-😀".to_owned())] };
        let line = explained.line("rä-😀");
        assert!(line.to_str().is_ok());
        let read: serde_json::Value = serde_json::from_slice(line.as_bytes()).unwrap();
        assert_eq!("rä-😀", read["chosen"]);
        assert_eq!(3, read["waiting"]);
    }
}

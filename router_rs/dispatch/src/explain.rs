//! The line that explains why a call was routed as it was, for clients that ask for it.

use http::{HeaderMap, HeaderValue};
use router_core::{Explanation, Fate, ReplicaId, Told};
use router_protocol::names::EXPLAIN;

use crate::refused::Refused;

/// The router's view when the call came, or when it was refused.
#[derive(Debug)]
pub(super) struct Explained {
    pub seen: Explanation,
    /// `application/Deployment`
    pub deployment: String,
    /// As in [`super::head::Head`].
    pub share: Option<f32>,
    /// The external names of the replicas.
    pub names: Vec<(ReplicaId, String)>,
    /// Where the call went last.
    pub chosen: Option<ReplicaId>,
    pub refused: Option<Refused>,
}

/// Whether the request asks for an explanation.
#[inline]
pub fn is_asked(headers: &HeaderMap) -> bool {
    headers.get(EXPLAIN).is_some_and(|value| value == "1")
}

impl Explained {
    /// The call goes to the replica with this name.
    pub(super) fn choose(&mut self, chosen: &str) {
        self.chosen = self.names.iter().find(|(_, name)| name == chosen).map(|(id, _)| *id);
    }

    /// Like [`Explained::text`], for a header.
    pub(super) fn line(&self) -> HeaderValue {
        HeaderValue::try_from(self.text()).unwrap_or_else(|_| HeaderValue::from_static("{}"))
    }

    /// One line of JSON: the router's view, and the outcome of the call.
    pub(super) fn text(&self) -> String {
        let fate = match (self.refused, self.chosen) {
            (Some(refused), _) => Fate::Refused(refused.word()),
            (None, Some(chosen)) => Fate::Sent(chosen),
            (None, None) => Fate::Unknown,
        };
        let name_of = |id: ReplicaId| {
            let known = self.names.iter().find(|(known, _)| *known == id);
            known.map_or_else(String::new, |(_, name)| name.clone())
        };
        let told = Told { fate, deployment: &self.deployment, share: self.share };
        in_ascii(&self.seen.to_json(told, name_of))
    }
}

/// Names may contain any characters; JSON can escape all of them in ASCII.
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
    use super::super::refused::Crowd;
    use super::*;

    #[test]
    fn a_line_is_json_in_ascii() {
        let seen =
            Explanation { rule: "least", waiting: 3, predicted_wait: None, replicas: Vec::new() };
        let names = vec![(ReplicaId(7), "rä-😀".to_owned())];
        let (deployment, share) = ("app/Echo".to_owned(), Some(0.25));
        let mut explained =
            Explained { seen, deployment, share, names, chosen: None, refused: None };
        let read = |explained: &Explained| -> serde_json::Value {
            let line = explained.line();
            assert!(line.to_str().is_ok());
            serde_json::from_slice(line.as_bytes()).unwrap()
        };
        assert_eq!(serde_json::Value::Null, read(&explained)["chosen"]);
        explained.choose("rä-😀");
        assert_eq!("rä-😀", read(&explained)["chosen"]);
        assert_eq!(3, read(&explained)["waiting"]);
        assert_eq!("0.25", read(&explained)["share"].to_string());
        explained.refused = Some(Refused::Expired(Crowd::default()));
        assert_eq!("deadline", read(&explained)["refused"]);
        assert_eq!(serde_json::Value::Null, read(&explained)["chosen"]);
    }
}

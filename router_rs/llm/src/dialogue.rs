//! Builds a chat from the items and blocks of other APIs.

use crate::messages::{ChatMessage, ContentPart, Part};

/// The messages so far.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    pub(crate) messages: Vec<ChatMessage>,
}

impl Dialogue {
    /// A new message of this role.
    pub(crate) fn begin(&mut self, role: &str) -> &mut ChatMessage {
        let role = role.to_owned();
        self.messages.push(ChatMessage { role, ..ChatMessage::default() });
        self.messages.last_mut().expect("invariant: one was pushed")
    }

    /// The last message if it is of this role, or else a new one.
    pub(crate) fn turn(&mut self, role: &str) -> &mut ChatMessage {
        if self.last_is(role, |_| true) {
            self.messages.last_mut().expect("invariant: there is a last one")
        } else {
            self.begin(role)
        }
    }

    pub(crate) fn last_is(&self, role: &str, also: impl FnOnce(&ChatMessage) -> bool) -> bool {
        self.messages.last().is_some_and(|last| last.role == role && also(last))
    }
}

pub(crate) fn text_part(text: String) -> ContentPart {
    ContentPart { part: Some(Part::Text(text)) }
}

pub(crate) fn json_part(json: String) -> ContentPart {
    ContentPart { part: Some(Part::Json(json)) }
}

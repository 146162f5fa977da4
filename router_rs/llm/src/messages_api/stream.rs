//! The answer of Messages as events: one content block after the other between the message's start
//! and its end.

use bytes::BytesMut;
use router_protocol::grpc::Status;
use serde::Serialize;

use crate::errors::{ApiError, Dialect};
use crate::events::{put_event, put_event_name};
use crate::messages::{self, TokenLogprob};
use crate::parts::{Kind, Part, WriteParts};
use crate::turn::Ending;
use crate::turn_answers::{WAITING, WriteTurn};
use crate::write::{put, put_text};

use super::message::{Block, End, Message, Shape, Usage, input_of};

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// Writes parts as content blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    shape: Shape,
    has_started: bool,
    /// Every delta of the open block begins so.
    prefix: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    MessageStart { message: Message<'a> },
    ContentBlockStart { index: usize, content_block: Block<'a> },
    ContentBlockStop { index: usize },
    MessageDelta { delta: End, usage: Usage },
    MessageStop,
}

// === impl Blocks ===

impl Blocks {
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, has_started: false, prefix: String::new() }
    }

    fn begin_deltas(&mut self, index: usize, delta: &str, field: &str) {
        self.prefix = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\
             \"index\":{index},\"delta\":{{\"type\":\"{delta}\",\"{field}\":"
        );
    }

    fn put_delta(&self, out: &mut BytesMut, text: &str) {
        put(out, &self.prefix);
        put_text(out, text);
        put(out, "}}\n\n");
    }
}

impl WriteParts for Blocks {
    /// The message starts with the engine's first words, as these have the tokens of the prompt.
    fn start(&mut self, out: &mut BytesMut, usage: &messages::Usage) {
        self.has_started = true;
        let message = self.shape.message(Vec::new(), End::default(), usage);
        put_event(out, "message_start", &Event::MessageStart { message });
        put(out, PING);
    }

    fn begin(&mut self, out: &mut BytesMut, index: usize, part: &Part) {
        let content_block = Block::begun(part);
        let event = Event::ContentBlockStart { index, content_block };
        put_event(out, "content_block_start", &event);
        let (delta, field) = match part.kind {
            Kind::Text | Kind::Refusal => ("text_delta", "text"),
            Kind::Reasoning => ("thinking_delta", "thinking"),
            Kind::Call(_) => ("input_json_delta", "partial_json"),
        };
        self.begin_deltas(index, delta, field);
    }

    fn piece(
        &mut self,
        out: &mut BytesMut,
        _: usize,
        part: &Part,
        piece: &str,
        _: &[TokenLogprob],
    ) {
        let is_omitted = part.kind == Kind::Reasoning && self.shape.omits_thinking;
        if !is_omitted && !piece.is_empty() {
            self.put_delta(out, piece);
        }
    }

    fn end(&mut self, out: &mut BytesMut, index: usize, part: &Part, _is_cut: bool) {
        // Clients wait for the signature by which Anthropic knows its own thoughts.
        if part.kind == Kind::Reasoning {
            self.begin_deltas(index, "signature_delta", "signature");
            self.put_delta(out, "");
        }
        put_event(out, "content_block_stop", &Event::ContentBlockStop { index });
    }
}

impl WriteTurn for Blocks {
    fn finish(
        &mut self,
        out: &mut BytesMut,
        parts: &[Part],
        ending: &Ending,
        usage: &messages::Usage,
    ) -> Result<(), Status> {
        for part in parts.iter().filter(|part| part.is_call()) {
            input_of(part, ending)?;
        }
        let (delta, usage) = (self.shape.end(ending, parts), Usage::from(usage));
        put_event(out, "message_delta", &Event::MessageDelta { delta, usage });
        put_event(out, "message_stop", &Event::MessageStop);
        Ok(())
    }

    fn fail(&mut self, out: &mut BytesMut, _: &[Part], _: usize, status: &Status) {
        put_event_name(out, "error");
        let error = ApiError::of(status);
        error.put_body(Dialect::Anthropic, &self.shape.request_id(), out);
        put(out, "\n\n");
    }

    /// A ping, or, as a message has to start first, a comment.
    fn keep_alive(&self) -> &'static str {
        if self.has_started { PING } else { WAITING }
    }
}

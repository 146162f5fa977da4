//! Anthropic's Messages API (docs.anthropic.com/en/api/messages).
//!
//! Requests become chats for the engine, and the parts of the engine's answer become content
//! blocks. Tools that Anthropic itself runs are rejected, with errors that name them.

mod content;
mod count;
mod message;
mod request;
mod stream;
mod whole;

use prost::Message;

use crate::errors::Dialect;
use crate::generation::{Expected, Generation};
use crate::hold::Stops;
use crate::parts::Parts;
use crate::request::ApiRequest;
use crate::turn::Turn;
use crate::turn_answers::{ErrorForm, TurnStream, WholeTurn};
use crate::{Answer, GENERATE, Opened, Resolved};

pub(crate) use self::count::CountTokensRequest;
use self::message::Shape;
pub(crate) use self::request::MessagesRequest;
use self::request::Thinking;
use self::stream::Blocks;

impl ApiRequest for MessagesRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn is_stream(&self) -> bool {
        self.generate.stream
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { mut generate, thinking, parallel_calls, .. } = *self;
        generate.request_id = format!("msg_{:032x}", resolved.id);
        generate.model = resolved.model;
        let message = generate.encode_to_vec().into();
        let generation = Generation::new(Expected {
            choices: 1,
            stops: Stops::new(&generate.stop, false),
            has_logprobs: false,
            has_parallel_calls: parallel_calls,
            id: resolved.id,
        });
        let shape = Shape {
            id: resolved.id,
            model: resolved.asked,
            omits_thinking: thinking == Thinking::Omitted,
            stop: generate.stop,
        };
        let hides = thinking == Thinking::Hidden;
        let errors = ErrorForm { dialect: Dialect::Anthropic, id: shape.request_id() };
        let answer: Box<dyn Answer> = if generate.stream {
            let turn = Turn::new(Parts::forgetting(Blocks::new(shape))).hiding_reasoning(hides);
            Box::new(TurnStream::new(generation, turn, errors))
        } else {
            let turn = Turn::new(Parts::new(())).hiding_reasoning(hides);
            Box::new(WholeTurn::new(generation, turn, errors, shape))
        };
        Opened { path: GENERATE, message, answer }
    }
}

//! OpenAI's Responses API (platform.openai.com/docs/api-reference/responses), without its state:
//! responses are not stored, so fields that refer to one are rejected, with errors that name them.

mod echo;
mod events;
mod input;
mod logprobs;
mod request;
mod response;
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

use self::events::Items;
pub(crate) use self::request::ResponsesRequest;
use self::response::Shape;

impl ApiRequest for ResponsesRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn is_stream(&self) -> bool {
        self.generate.stream
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Self { mut generate, parallel_calls, echo, .. } = *self;
        generate.request_id = format!("resp_{:032x}", resolved.id);
        generate.model = resolved.model;
        let generation = Generation::new(Expected {
            choices: 1,
            stops: Stops::new(&[], false),
            has_logprobs: generate.logprobs,
            has_parallel_calls: parallel_calls,
            id: resolved.id,
        });
        let (id, created) = (resolved.id, resolved.created);
        let shape = Shape { id, model: resolved.asked, created, echo };
        let errors = ErrorForm { dialect: Dialect::OpenAi, id: String::new() };
        let answer: Box<dyn Answer> = if generate.stream {
            let turn = Turn::new(Parts::new(Items::new(shape)));
            Box::new(TurnStream::new(generation, turn, errors))
        } else {
            Box::new(WholeTurn::new(generation, Turn::new(Parts::new(())), errors, shape))
        };
        let message = generate.encode_to_vec().into();
        Opened { path: GENERATE, message, answer }
    }
}

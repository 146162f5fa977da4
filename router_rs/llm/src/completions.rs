//! `POST /v1/completions`
//! (platform.openai.com/docs/api-reference/completions/create).

mod events;

use bytes::Bytes;
use prost::Message;

use self::events::{CompletionEvents, Echo, WholeCompletion};
use crate::answers::{Stream, Whole};
use crate::errors::ApiError;
use crate::generation::{Expected, Generation};
use crate::json::{Json, Object, Wrong};
use crate::messages::{GenerateInput, GenerateRequest, Prompt, PromptInput, Prompts};
use crate::prompts::prompts;
use crate::request::ApiRequest;
use crate::sampling::{CHOICES_MAX, Common, TOP_LOGPROBS_MAX, max_tokens};
use crate::shape::Shape;
use crate::{Answer, GENERATE, Opened, Resolved};

/// By OpenAI's document; chats have no limit instead.
const MAX_TOKENS_DEFAULT: u32 = 16;

#[derive(Debug)]
pub(crate) struct CompletionRequest {
    common: Common,
    prompts: Prompts,
    echo: bool,
}

// === impl CompletionRequest ===

impl CompletionRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut body = Json::body(body)?.object()?;
        let mut common = Common::read(&mut body)?;
        let request = &mut common.request;
        request.max_tokens = body.read("max_tokens", max_tokens)?.unwrap_or(MAX_TOKENS_DEFAULT);
        let logprobs = body.read("logprobs", |value| value.integer(0, TOP_LOGPROBS_MAX))?;
        request.logprobs = logprobs.is_some();
        request.top_logprobs = logprobs.unwrap_or_default();
        read_best_of(&mut body, request.n)?;
        let prompts = read_prompts(&mut body, request.n)?;
        let echo = body.boolean("echo")?.unwrap_or(false);
        if echo {
            check_echo(request, &prompts.prompts)?;
        }
        request.other_json = body.rest();
        Ok(Self { common, prompts, echo })
    }
}

impl ApiRequest for CompletionRequest {
    fn model(&self) -> Option<&str> {
        self.common.model.as_deref()
    }

    fn is_stream(&self) -> bool {
        self.common.stream.is_some()
    }

    fn open(self: Box<Self>, resolved: Resolved) -> Opened {
        let Common { stream, stops, mut request, .. } = self.common;
        let shape = Shape {
            id: format!("cmpl-{:032x}", resolved.id),
            model: resolved.asked,
            created: resolved.created,
            top_logprobs: request.logprobs.then_some(request.top_logprobs as usize),
        };
        let generation = Generation::new(Expected {
            choices: request.n as usize * self.prompts.prompts.len(),
            stops,
            has_logprobs: request.logprobs,
            has_parallel_calls: true,
            id: resolved.id,
        });
        let texts = if self.echo { texts(&self.prompts.prompts) } else { Vec::new() };
        let echo = Echo { texts, n: request.n as usize };
        request.request_id.clone_from(&shape.id);
        request.model = resolved.model;
        request.input = Some(GenerateInput::Prompts(self.prompts));
        let message = Bytes::from(request.encode_to_vec());
        let answer: Box<dyn Answer> = match stream {
            Some(options) => {
                Box::new(Stream::new(generation, CompletionEvents::new(shape, options, echo)))
            }
            None => Box::new(Whole::new(generation, WholeCompletion { shape, echo })),
        };
        Opened { path: GENERATE, message, answer }
    }
}

fn read_prompts(body: &mut Object<'_>, n: u32) -> Result<Prompts, Wrong> {
    let count_max = CHOICES_MAX / n as usize;
    let prompts = body.need("prompt", |value| prompts(value, count_max))?;
    Ok(Prompts { prompts, suffix: body.text("suffix")?.unwrap_or_default() })
}

/// It would need the log probabilities of the choices that are thrown away.
fn read_best_of(body: &mut Object<'_>, n: u32) -> Result<(), Wrong> {
    match body.read("best_of", |value| value.integer(1_u32, u32::MAX))? {
        Some(best_of) if best_of != n => {
            let what = format!("is {best_of} and n is {n}; only the same number is served");
            Err(Wrong::new(what).at("best_of"))
        }
        _ => Ok(()),
    }
}

/// The prompt is repeated here, where only its text is known.
fn check_echo(request: &GenerateRequest, prompts: &[Prompt]) -> Result<(), Wrong> {
    if request.logprobs {
        let what = "is not served together with logprobs: those of the prompt are not known";
        return Err(Wrong::new(what).at("echo"));
    }
    if texts(prompts).len() < prompts.len() {
        return Err(Wrong::new("is served for prompts of text, not of token ids").at("echo"));
    }
    Ok(())
}

fn texts(prompts: &[Prompt]) -> Vec<Box<str>> {
    let text = |prompt: &Prompt| match &prompt.prompt {
        Some(PromptInput::Text(text)) => Some(text.as_str().into()),
        Some(PromptInput::TokenIds(_)) | None => None,
    };
    prompts.iter().filter_map(text).collect()
}

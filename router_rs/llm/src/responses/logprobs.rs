//! Log probabilities as Responses has them.

use std::borrow::Cow;

use serde::Serialize;

use crate::logprobs::{bytes, text};
use crate::messages::TokenLogprob;
use crate::write::LOGPROB_MIN;

#[derive(Debug, Serialize)]
pub(super) struct Logprob<'a> {
    #[serde(flatten)]
    token: Token<'a>,
    top_logprobs: Vec<Token<'a>>,
}

#[derive(Debug, Serialize)]
struct Token<'a> {
    #[serde(rename = "token")]
    text: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    logprob: f32,
}

/// Items have the bytes of tokens, events do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    WithBytes,
    Plain,
}

impl<'a> Logprob<'a> {
    pub(super) fn all(logprobs: &'a [TokenLogprob], detail: Detail) -> Vec<Self> {
        let read = |logprob: &'a TokenLogprob| Self {
            token: Token::new(logprob, detail),
            top_logprobs: logprob.top.iter().map(|top| Token::new(top, detail)).collect(),
        };
        logprobs.iter().map(read).collect()
    }
}

impl<'a> Token<'a> {
    fn new(logprob: &'a TokenLogprob, detail: Detail) -> Self {
        let is_number = logprob.logprob.is_finite();
        Self {
            text: text(logprob),
            bytes: (detail == Detail::WithBytes).then(|| bytes(logprob)),
            logprob: if is_number { logprob.logprob.max(LOGPROB_MIN) } else { LOGPROB_MIN },
        }
    }
}

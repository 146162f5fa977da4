//! The fields that chat and completions have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hold::Stops;
use crate::json::{Json, Object, Wrong};
use crate::messages::{GenerateRequest, Sampling};

/// As OpenAI's document has it.
const N_MAX: u32 = 128;

/// OpenAI allows four; engines take more, and each costs little.
const STOPS_MAX: usize = 16;

/// OpenAI's for chat; vLLM's default too.
pub(crate) const TOP_LOGPROBS_MAX: u32 = 20;

/// The limit for choices of all prompts of a request together. Arbitrary.
pub(crate) const CHOICES_MAX: usize = 2048;

/// The parameters of a request, besides its input.
#[derive(Debug)]
pub(crate) struct Common {
    pub model: Option<String>,
    pub stream: Option<StreamOptions>,
    pub stops: Arc<Stops>,
    /// Without the input, and without the fields that only one of the APIs has.
    pub request: GenerateRequest,
}

/// How a stream is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Usage in an event of its own, at the end.
    pub has_usage: bool,
    /// And the usage so far in each event (vLLM).
    pub has_continuous_usage: bool,
}

impl Common {
    pub(crate) fn read(body: &mut Object<'_>) -> Result<Self, Wrong> {
        let stop = body.read("stop", stop)?.unwrap_or_default();
        let mut keeps_stop = false;
        body.check("include_stop_str_in_output", |value| {
            keeps_stop = value.boolean()?;
            Ok(())
        })?;
        let model = body.text("model")?;
        let stream = stream(body)?;
        let request = GenerateRequest {
            sampling: Some(sampling(body)?),
            n: body.read("n", |n| n.integer(1, N_MAX))?.unwrap_or(1),
            stop_token_ids: body.read("stop_token_ids", token_ids)?.unwrap_or_default(),
            stream: stream.is_some(),
            user: body.text("user")?.unwrap_or_default(),
            priority: body
                .read("priority", |value| value.integer(i32::MIN, i32::MAX))?
                .unwrap_or_default(),
            ..GenerateRequest::default()
        };
        let stops = Stops::new(&stop, keeps_stop);
        Ok(Self { model, stream, stops, request: GenerateRequest { stop, ..request } })
    }
}

fn stream(body: &mut Object<'_>) -> Result<Option<StreamOptions>, Wrong> {
    let is_stream = body.boolean("stream")?.unwrap_or(false);
    let options = body.read("stream_options", |options| {
        let mut options = options.object()?;
        Ok(StreamOptions {
            has_usage: options.boolean("include_usage")?.unwrap_or(false),
            has_continuous_usage: options.boolean("continuous_usage_stats")?.unwrap_or(false),
        })
    })?;
    if options.is_some() && !is_stream {
        let what = "is for streams only; leave it out, or set stream to true";
        return Err(Wrong::new(what).at("stream_options"));
    }
    Ok(is_stream.then(|| options.unwrap_or_default()))
}

pub(crate) fn sampling(body: &mut Object<'_>) -> Result<Sampling, Wrong> {
    let anything = |value: Json<'_>| value.number(f32::MIN, f32::MAX);
    Ok(Sampling {
        temperature: body.read("temperature", |value| value.number(0.0, 2.0))?,
        top_p: body.read("top_p", |value| value.number(0.0, 1.0))?,
        top_k: body.read("top_k", |value| value.integer(-1, i32::MAX))?,
        min_p: body.read("min_p", |value| value.number(0.0, 1.0))?,
        presence_penalty: body.read("presence_penalty", |value| value.number(-2.0, 2.0))?,
        frequency_penalty: body.read("frequency_penalty", |value| value.number(-2.0, 2.0))?,
        repetition_penalty: body.read("repetition_penalty", anything)?,
        seed: body.read("seed", |value| value.integer(i64::MIN, i64::MAX))?,
        logit_bias: body.read("logit_bias", logit_bias)?.unwrap_or_default(),
        ignore_eos: body.boolean("ignore_eos")?.unwrap_or(false),
    })
}

fn logit_bias(value: Json<'_>) -> Result<BTreeMap<i32, f32>, Wrong> {
    let entry = |(name, value): (&str, Json<'_>)| {
        let token: i32 = name.parse().map_err(|_| Wrong::new("is no token id").at(name))?;
        let bias = value.number(-100.0, 100.0).map_err(|wrong| wrong.at(name))?;
        Ok((token, bias))
    };
    value.object()?.fields().map(entry).collect()
}

fn stop(value: Json<'_>) -> Result<Vec<String>, Wrong> {
    let one = |value: Json<'_>| match value.text()? {
        text if text.is_empty() => Err(Wrong::new("is empty, which would stop at once")),
        text => Ok(text),
    };
    if value.is_text() {
        return Ok(vec![one(value)?]);
    }
    if !value.is_array() {
        return Err(value.not("a string or an array of strings"));
    }
    let stops = value.each(one)?;
    if stops.len() > STOPS_MAX {
        return Err(Wrong::new(format!("has {} sequences; allowed: {STOPS_MAX}", stops.len())));
    }
    Ok(stops)
}

/// For APIs whose answers have one choice only; engines would make several.
pub(crate) fn refuse_choices(body: &mut Object<'_>) -> Result<(), Wrong> {
    body.read("n", |n| n.integer(1, 1)).map(drop)
}

pub(crate) fn token_ids(value: Json<'_>) -> Result<Vec<u32>, Wrong> {
    value.each(|id| id.integer(0, u32::MAX))
}

/// A number of tokens, which is at least one: engines read zero as no limit.
pub(crate) fn max_tokens(value: Json<'_>) -> Result<u32, Wrong> {
    value.integer(1, u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::errors::ApiError;

    fn read(body: &Value) -> Result<Common, ApiError> {
        let body = body.to_string();
        let read = || Common::read(&mut Json::body(body.as_bytes())?.object()?);
        read().map_err(ApiError::from)
    }

    #[test]
    fn fields_become_those_of_the_engine() {
        let common = read(&json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.25, "presence_penalty": 1,
            "frequency_penalty": -1, "repetition_penalty": 1.5, "seed": -7, "ignore_eos": true,
            "logit_bias": {"12": -100}, "n": 2, "stop": "END", "stop_token_ids": [1, 2],
            "user": "u", "priority": -1,
        }));
        let common = common.unwrap();
        let sampling = Sampling {
            temperature: Some(0.0),
            top_p: Some(0.5),
            top_k: Some(3),
            min_p: Some(0.25),
            presence_penalty: Some(1.0),
            frequency_penalty: Some(-1.0),
            repetition_penalty: Some(1.5),
            seed: Some(-7),
            logit_bias: BTreeMap::from([(12, -100.0)]),
            ignore_eos: true,
        };
        let request = GenerateRequest {
            sampling: Some(sampling),
            n: 2,
            stop: vec!["END".into()],
            stop_token_ids: vec![1, 2],
            stream: true,
            user: "u".into(),
            priority: -1,
            ..GenerateRequest::default()
        };
        assert_eq!(request, common.request);
        assert_eq!(Some("m"), common.model.as_deref());
        let options = StreamOptions { has_usage: true, has_continuous_usage: false };
        assert_eq!(Some(options), common.stream);
    }

    #[test]
    fn what_is_null_is_not_set() {
        let nulls = json!({"temperature": null, "stop": null, "n": null, "stream": null});
        let common = read(&nulls).unwrap();
        assert_eq!((1, None), (common.request.n, common.stream));
        assert_eq!(Some(Sampling::default()), common.request.sampling);
    }

    #[test]
    fn wrong_values_name_their_field() {
        for (body, param) in [
            (json!({"temperature": "hot"}), "temperature"),
            (json!({"temperature": 2.5}), "temperature"),
            (json!({"top_p": -1}), "top_p"),
            (json!({"n": 0}), "n"),
            (json!({"n": 129}), "n"),
            (json!({"n": true}), "n"),
            (json!({"seed": 1.5}), "seed"),
            (json!({"stop": 7}), "stop"),
            (json!({"stop": ""}), "stop"),
            (json!({"stop": ["a", 7]}), "stop[1]"),
            (json!({"stop": vec!["a"; 17]}), "stop"),
            (json!({"stop_token_ids": [-1]}), "stop_token_ids[0]"),
            (json!({"logit_bias": {"x": 1}}), "logit_bias.x"),
            (json!({"logit_bias": {"1": 101}}), "logit_bias.1"),
            (json!({"stream": "yes"}), "stream"),
            (json!({"stream_options": {"include_usage": true}}), "stream_options"),
            (
                json!({"stream": true, "stream_options": {"include_usage": 1}}),
                "stream_options.include_usage",
            ),
            (json!({"model": 1}), "model"),
            (json!({"user": {}}), "user"),
        ] {
            let error = read(&body).unwrap_err();
            assert_eq!(Some(param), error.param.as_deref(), "{body}");
            assert_eq!(400, error.status.as_u16());
        }
    }
}

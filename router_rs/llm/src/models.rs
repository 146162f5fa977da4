//! `GET /v1/models` and `GET /v1/models/{id}`
//! (platform.openai.com/docs/api-reference/models), with the fields that vLLM adds.

use bytes::BytesMut;
use http::HeaderMap;

use crate::door::Door;
use crate::write::{end_json, put, put_integer, put_list, put_text, put_text_or_null};
use crate::{Dialect, Output};

/// A model as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    pub id: String,
    /// Where its weights come from.
    pub root: String,
    pub owned_by: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Tokens of prompt and completion; 0: not known.
    pub max_model_len: u32,
    /// The model that this one is an adapter of.
    pub parent: Option<String>,
}

/// Answers with the list of models.
pub fn answer_models(models: &[ModelCard], output: &mut Output) {
    put(&mut output.body, r#"{"object":"list","data":"#);
    put_list(&mut output.body, models, put_model);
    put(&mut output.body, "}");
    end_json(output);
}

/// Answers with one of the models, or says that there is none of this name.
pub fn answer_model(models: &[ModelCard], name: &str, output: &mut Output) {
    if let Some(model) = models.iter().find(|model| model.id == name) {
        put_model(&mut output.body, model);
        return end_json(output);
    }
    let known = models.iter().map(|model| &*model.id);
    let error = Door::Model.unknown_model(name, known);
    error.answer(Dialect::OpenAi, "", &HeaderMap::new(), output);
}

fn put_model(out: &mut BytesMut, model: &ModelCard) {
    put(out, r#"{"id":"#);
    put_text(out, &model.id);
    put(out, r#","object":"model","created":"#);
    put_integer(out, model.created);
    put(out, r#","owned_by":"#);
    put_text(out, &model.owned_by);
    put(out, r#","root":"#);
    put_text(out, &model.root);
    put(out, r#","parent":"#);
    put_text_or_null(out, model.parent.as_deref());
    put(out, r#","max_model_len":"#);
    match model.max_model_len {
        0 => put(out, "null"),
        length => put_integer(out, length.into()),
    }
    put(out, "}");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn card(id: &str) -> ModelCard {
        ModelCard {
            id: id.into(),
            root: "hub/m".into(),
            owned_by: "pyserve".into(),
            created: 7,
            max_model_len: 2048,
            parent: None,
        }
    }

    fn answered(answer: impl Fn(&mut Output)) -> (u16, Value) {
        let mut output = Output::default();
        answer(&mut output);
        assert!(output.is_ended);
        let status = output.head.expect("an answer has a head").status.as_u16();
        (status, serde_json::from_slice(&output.body).expect("an answer is JSON"))
    }

    #[test]
    fn models_are_listed_and_found() {
        let adapter = ModelCard { parent: Some("m".into()), max_model_len: 0, ..card("m:a") };
        let models = [card("m"), adapter];
        let first = json!({
            "id": "m", "object": "model", "created": 7, "owned_by": "pyserve", "root": "hub/m",
            "parent": null, "max_model_len": 2048,
        });
        let second = json!({
            "id": "m:a", "object": "model", "created": 7, "owned_by": "pyserve", "root": "hub/m",
            "parent": "m", "max_model_len": null,
        });
        let list = json!({"object": "list", "data": [first, second]});
        assert_eq!((200, list), answered(|output| answer_models(&models, output)));
        assert_eq!((200, second), answered(|output| answer_model(&models, "m:a", output)));
        let (status, body) = answered(|output| answer_model(&models, "x", output));
        assert_eq!((404, &json!("model_not_found")), (status, &body["error"]["code"]));
    }
}

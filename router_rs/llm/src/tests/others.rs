//! Embeddings, scores, ranks and tokens.

use super::*;
use crate::messages::{
    DetokenizeRequest, DetokenizeResponse, EmbedRequest, EmbedResponse, Embedding, ScoreRequest,
    ScoreResponse, TokenizeInput, TokenizeRequest, TokenizeResponse,
};

/// The engine's request, which has to be for this method.
fn request<M: Message + Default>(opened: &Opened, method: &str) -> M {
    assert_eq!(format!("/pyserve.llm.v1.Engine/{method}"), opened.path);
    M::decode(&*opened.message).expect("the engine's message can be read")
}

fn prompt_usage(tokens: u32) -> Usage {
    Usage { prompt_tokens: tokens, ..Usage::default() }
}

fn embeddings(values: &[&[f32]]) -> EmbedResponse {
    let embedding = |values: &&[f32]| Embedding { values: values.to_vec() };
    EmbedResponse {
        embeddings: values.iter().map(embedding).collect(),
        usage: Some(prompt_usage(4)),
    }
}

fn scores(scores: &[f32]) -> ScoreResponse {
    ScoreResponse { scores: scores.into(), usage: Some(prompt_usage(9)) }
}

/// The status and the message of the error.
fn engine_error<M: Message>(opened: Opened, messages: &[M]) -> (u16, String) {
    let (status, error) = answer(opened, messages, &Ok(())).error();
    (status, error["message"].as_str().unwrap().into())
}

fn refused(door: Door, body: &Value) -> String {
    let error = open(door, body).expect_err("a request that is wrong");
    assert_eq!(400, error.status.as_u16());
    error.param.unwrap_or_default()
}

#[test]
fn embeddings_are_lists_of_numbers() {
    let body = json!({
        "model": "alias", "input": ["a", "b"], "dimensions": 2, "user": "u", "truncate": true,
    });
    let opened = open(Door::Embeddings, &body).unwrap();
    let asked: EmbedRequest = request(&opened, "Embed");
    assert_eq!(("m:adapter", 2, 2), (&*asked.model, asked.inputs.len(), asked.dimensions));
    assert_eq!(("u", r#"{"truncate":true}"#), (&*asked.user, &*asked.other_json));
    let expected = json!({
        "object": "list", "model": "alias",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -1.0]},
            {"object": "embedding", "index": 1, "embedding": [0.25, 2.0]},
        ],
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    });
    let response = embeddings(&[&[0.5, -1.0], &[0.25, 2.0]]);
    assert_eq!(expected, answer(opened, &[response], &Ok(())).json());
}

#[test]
fn base64_is_of_little_endian_floats() {
    let opened = open(Door::Embeddings, &json!({"input": [1, 2], "encoding_format": "base64"}));
    let json = answer(opened.unwrap(), &[embeddings(&[&[1.0, -2.0]])], &Ok(())).json();
    // 00 00 80 3f 00 00 00 c0
    assert_eq!("AACAPwAAAMA=", json["data"][0]["embedding"]);
}

#[test]
fn embeddings_that_do_not_fit_are_errors_of_the_engine() {
    let opened = || open(Door::Embeddings, &json!({"input": "a"})).unwrap();
    for (responses, expected) in [
        (vec![embeddings(&[])], "the engine has answered 0 embeddings of 1"),
        (
            vec![embeddings(&[&[f32::NAN]])],
            "the engine's embedding 0 has numbers that are not finite",
        ),
        (vec![], "the engine has ended without an answer"),
        (vec![embeddings(&[&[1.0]]), embeddings(&[&[1.0]])], "the engine has answered twice"),
    ] {
        assert_eq!((500, expected.to_owned()), engine_error(opened(), &responses));
    }
    let (status, error) = answer(opened(), &[embeddings(&[&[1.0]])], &broken()).error();
    assert_eq!((503, "the engine is gone"), (status, error["message"].as_str().unwrap()));
}

#[test]
fn scores_are_in_the_order_of_the_documents() {
    for body in [
        json!({"text_1": "q", "text_2": ["a", "b"]}),
        json!({"queries": "q", "documents": ["a", "b"]}),
        json!({"text_1": ["q", "r"], "text_2": ["a", "b"]}),
    ] {
        let opened = open(Door::Score, &body).unwrap();
        let asked: ScoreRequest = request(&opened, "Score");
        assert_eq!(["a", "b"], *asked.documents);
        assert_eq!("q", asked.queries[0]);
        let expected = json!({
            "id": "score-00000000000000000000000000000abc", "object": "list", "created": 7,
            "model": "alias",
            "data": [
                {"index": 0, "object": "score", "score": 0.5},
                {"index": 1, "object": "score", "score": 0.75},
            ],
            "usage": {"prompt_tokens": 9, "total_tokens": 9},
        });
        assert_eq!(expected, answer(opened, &[scores(&[0.5, 0.75])], &Ok(())).json());
    }
}

#[test]
fn ranks_are_the_best_first() {
    let documents = json!(["a", {"text": "b"}, "c"]);
    let body = json!({"query": "q", "documents": documents, "top_n": 2});
    let opened = open(Door::Rerank, &body).unwrap();
    let asked: ScoreRequest = request(&opened, "Score");
    assert_eq!((vec!["q".to_owned()], 3), (asked.queries, asked.documents.len()));
    let response = || scores(&[0.25, 0.75, 0.5]);
    let expected = json!({
        "id": "rerank-00000000000000000000000000000abc", "model": "alias",
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "results": [
            {"index": 1, "document": {"text": "b"}, "relevance_score": 0.75},
            {"index": 2, "document": {"text": "c"}, "relevance_score": 0.5},
        ],
    });
    assert_eq!(expected, answer(opened, &[response()], &Ok(())).json());
    let body = json!({"query": "q", "documents": documents, "return_documents": false});
    let results = answer(open(Door::Rerank, &body).unwrap(), &[response()], &Ok(())).json();
    let results = results["results"].as_array().unwrap().clone();
    assert_eq!(
        (3, json!({"index": 0, "relevance_score": 0.25})),
        (results.len(), results[2].clone())
    );
}

#[test]
fn scores_that_do_not_fit_are_errors_of_the_engine() {
    let opened = || open(Door::Rerank, &json!({"query": "q", "documents": ["a"]})).unwrap();
    let few = engine_error(opened(), &[scores(&[])]);
    assert_eq!((500, "the engine has answered 0 scores of 1".into()), few);
    let broken = engine_error(opened(), &[scores(&[f32::INFINITY])]);
    assert_eq!((500, "the engine's scores are not all finite numbers".into()), broken);
}

#[test]
fn texts_and_chats_become_tokens() {
    let opened = open(Door::Tokenize, &json!({"prompt": "ab", "return_token_strs": true})).unwrap();
    let asked: TokenizeRequest = request(&opened, "Tokenize");
    assert_eq!(Some(TokenizeInput::Text("ab".into())), asked.input);
    let response = || TokenizeResponse {
        token_ids: vec![1, 2],
        max_model_len: 64,
        token_strs: vec!["a".into(), "b".into()],
    };
    let expected =
        json!({"count": 2, "max_model_len": 64, "tokens": [1, 2], "token_strs": ["a", "b"]});
    assert_eq!(expected, answer(opened, &[response()], &Ok(())).json());
    let messages = json!([{"role": "user", "content": "a"}]);
    let body = json!({"messages": messages, "add_special_tokens": false});
    let opened = open(Door::Tokenize, &body).unwrap();
    let asked: TokenizeRequest = request(&opened, "Tokenize");
    assert!(matches!(asked.input, Some(TokenizeInput::Chat(_))));
    assert_eq!(Some(false), asked.add_special_tokens);
    let unknown = TokenizeResponse { max_model_len: 0, ..response() };
    let expected = json!({"count": 2, "max_model_len": null, "tokens": [1, 2], "token_strs": null});
    assert_eq!(expected, answer(opened, &[unknown], &Ok(())).json());
}

#[test]
fn tokens_become_text() {
    let opened = open(Door::Detokenize, &json!({"tokens": [1, 2]})).unwrap();
    let asked: DetokenizeRequest = request(&opened, "Detokenize");
    assert_eq!([1, 2], *asked.token_ids);
    let response = DetokenizeResponse { text: "a\"b".into() };
    assert_eq!(json!({"prompt": "a\"b"}), answer(opened, &[response], &Ok(())).json());
}

#[test]
fn wrong_fields_are_told_by_name() {
    for (door, body, param) in [
        (Door::Embeddings, json!({}), "input"),
        (Door::Embeddings, json!({"input": []}), "input"),
        (Door::Embeddings, json!({"input": vec!["a"; 2049]}), "input"),
        (Door::Embeddings, json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
        (Door::Embeddings, json!({"input": "a", "dimensions": 0}), "dimensions"),
        (Door::Score, json!({"text_1": "q"}), "text_2"),
        (Door::Score, json!({"text_2": "a"}), "text_1"),
        (Door::Score, json!({"queries": ["a", "b"], "documents": ["a"]}), "queries"),
        (Door::Rerank, json!({"documents": ["a"]}), "query"),
        (Door::Rerank, json!({"query": "q", "documents": []}), "documents"),
        (Door::Rerank, json!({"query": "q", "documents": ["a", {}]}), "documents[1].text"),
        (Door::Rerank, json!({"query": "q", "documents": ["a"], "top_n": -1}), "top_n"),
        (Door::Tokenize, json!({}), "prompt"),
        (Door::Tokenize, json!({"prompt": "a", "messages": []}), "prompt"),
        (Door::Tokenize, json!({"messages": []}), "messages"),
        (Door::Detokenize, json!({"tokens": ["a"]}), "tokens[0]"),
    ] {
        assert_eq!(param, refused(door, &body), "{door:?} {body}");
    }
}

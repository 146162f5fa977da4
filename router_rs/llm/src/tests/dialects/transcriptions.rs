use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::*;
use crate::messages::TranscribeRequest;

/// A form with a file and these fields.
fn form(fields: &[(&str, &str)]) -> Result<Opened, ApiError> {
    let mut parts = vec![String::from(
        "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
         Content-Type: audio/wav\r\n\r\nRIFF\r\n",
    )];
    parts.extend(fields.iter().map(|(name, value)| {
        format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }));
    read(format!("--b\r\n{}--b--\r\n", parts.join("--b\r\n")))
}

fn read(body: String) -> Result<Opened, ApiError> {
    let content_type = HeaderValue::from_static("multipart/form-data; boundary=b");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    Ok(Door::Transcriptions.read(&headers, &body.into())?.open(resolved()))
}

#[test]
fn a_form_becomes_the_engines_request() {
    let opened = form(&[
        ("model", "alias"),
        ("language", "en"),
        ("prompt", "p"),
        ("response_format", "text"),
        ("temperature", "0.5"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("stream", "true"),
        ("chunking_strategy", "auto"),
    ]);
    let opened = opened.unwrap();
    assert_eq!("/pyserve.llm.v1.Engine/Transcribe", opened.path);
    let expected = TranscribeRequest {
        request_id: "trsc_00000000000000000000000000000abc".into(),
        model: "m:adapter".into(),
        audio: Bytes::from_static(b"RIFF"),
        filename: "a.wav".into(),
        content_type: "audio/wav".into(),
        language: "en".into(),
        prompt: "p".into(),
        response_format: "text".into(),
        temperature: Some(0.5),
        timestamp_granularities: vec!["word".into(), "segment".into()],
        stream: true,
        other_json: r#"{"chunking_strategy":"auto"}"#.into(),
    };
    assert_eq!(expected, TranscribeRequest::decode(&*opened.message).unwrap());
}

#[test]
fn the_text_is_answered_in_the_form_that_was_asked_for() {
    let deltas = [text("Hello "), text("there."), usage(3, 2)];
    let usage = json!({"type": "tokens", "input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
    let answer_to = |fields: &[(&str, &str)]| answered(form(fields).unwrap(), &deltas);
    let expected = json!({"text": "Hello there.", "usage": usage});
    assert_eq!(expected, answer_to(&[]).json());
    let plain = answer_to(&[("response_format", "text")]);
    assert_eq!("Hello there.", plain.body);
    assert_eq!("text/plain; charset=utf-8", plain.headers["content-type"]);
    let stream = answer_to(&[("stream", "true")]);
    let events: Vec<Value> =
        events(&stream.body).iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let expected = [
        json!({"type": "transcript.text.delta", "delta": "Hello "}),
        json!({"type": "transcript.text.delta", "delta": "there."}),
        json!({"type": "transcript.text.done", "text": "Hello there.", "usage": usage}),
    ];
    assert_eq!(expected, *events);
}

#[test]
fn errors_are_in_openais_shape() {
    let answered = answer::<Delta>(form(&[("stream", "true")]).unwrap(), &[], &broken());
    assert_eq!(503, answered.error().0);
    let stream = form(&[("stream", "true")]).unwrap();
    let answered = answer(stream, &[text("a")], &broken());
    let last = events(&answered.body).last().map(|event| serde_json::from_str::<Value>(event));
    assert_eq!("the engine is gone", last.unwrap().unwrap()["error"]["message"]);
}

#[test]
fn what_is_wrong_is_told_by_its_name() {
    for (field, value) in [
        ("response_format", "srt"),
        ("response_format", "verbose_json"),
        ("temperature", "hot"),
        ("temperature", "2"),
        ("stream", "maybe"),
        ("include[]", "logprobs"),
    ] {
        let error = form(&[(field, value)]).unwrap_err();
        assert_eq!((400, Some(field)), (error.status.as_u16(), error.param.as_deref()));
    }
    assert_eq!(Some("file"), read("--b--".into()).unwrap_err().param.as_deref());
    assert_eq!(400, read(String::new()).unwrap_err().status.as_u16());
    let json = open(Door::Transcriptions, &json!({})).unwrap_err();
    assert!(json.message.starts_with("the content-type has to be"), "{}", json.message);
}

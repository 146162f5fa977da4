//! Whole streams and objects, as files. They have been checked with the clients that OpenAI and
//! Anthropic publish, `openai` 3.57.0 and `anthropic` 2.14.0; check changed files in the same way.
//! `cargo test -- --ignored golden_files_are_written` writes them.

use std::path::Path;

use super::*;

/// Names of files, and their expected contents.
fn answers() -> Vec<(&'static str, String)> {
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"},
        "strict": true}]);
    let response = json!({
        "instructions": "Be brief.", "tools": tools, "metadata": {"a": "b"}, "top_logprobs": 1,
        "include": ["message.output_text.logprobs"],
    });
    let message = json!({"thinking": {"type": "adaptive"}, "stop_sequences": ["END"]});
    let stream = |fields: &Value| {
        let mut fields = fields.clone();
        merge(&mut fields, &json!({"stream": true}));
        fields
    };
    let mut all = everything();
    all[3].logprobs = vec![token("It is", -0.5, &[("It", -1.0)]), token(" \u{2603}", -0.25, &[])];
    let length = [reasoning("hm"), refusal("no"), text("a"), end(FinishReason::Length)];
    let stopped = [usage(3, 1), text("a EN"), text("D")];
    let ok = &Ok(());
    let mut answers = Vec::new();
    let mut add = |name, opened, deltas: &[Delta], ended: &Result<(), Status>| {
        answers.push((name, answer(opened, deltas, ended).body));
    };
    add("response.json", responses(&response), &all, ok);
    add("response.sse", responses(&stream(&response)), &all, ok);
    add("response_incomplete.sse", responses(&stream(&response)), &length, ok);
    add("response_failed.sse", responses(&stream(&response)), &all[..6], &broken());
    add("message.json", messages(&message), &all, ok);
    add("message.sse", messages(&stream(&message)), &all, ok);
    add("message_length.sse", messages(&stream(&message)), &length, ok);
    add("message_stopped.sse", messages(&stream(&message)), &stopped, ok);
    add("message_failed.sse", messages(&stream(&message)), &all[..6], &broken());
    answers
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/dialects/golden").join(name)
}

#[test]
fn answers_are_as_their_clients_read_them() {
    for (name, actual) in answers() {
        let expected = std::fs::read_to_string(path(name)).expect("the file is there");
        assert_eq!(expected, actual, "{name}");
    }
}

#[test]
#[ignore = "writes the files that the other test reads"]
fn golden_files_are_written() {
    for (name, actual) in answers() {
        std::fs::write(path(name), actual).expect("a file can be written");
    }
}

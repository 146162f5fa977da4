//! Requests as clients write them: bodies that `openai` 3.57.0 and `anthropic` 2.14.0 have sent.

use super::*;
use crate::Door;
use crate::messages::{Chat, GenerateInput, TokenizeInput, TokenizeRequest};

fn chat_of(door: Door, body: &'static str) -> Chat {
    let body = Bytes::from_static(body.as_bytes());
    let opened = door.read(&HeaderMap::new(), &body).expect("the request is read").open(resolved());
    if door == Door::CountTokens {
        match TokenizeRequest::decode(&*opened.message).expect("a message").input {
            Some(TokenizeInput::Chat(chat)) => return chat,
            other => panic!("{other:?}"),
        }
    }
    let request = generate(&opened);
    // All else has a meaning of its own.
    let is_known =
        request.other_json.is_empty() || request.other_json.starts_with("{\"thinking\":");
    assert!(is_known, "{}", request.other_json);
    match request.input {
        Some(GenerateInput::Chat(chat)) => chat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_of_clients_are_read() {
    let second = "user assistant tool tool";
    for (door, body, roles, tools) in [
        (Door::Responses, include_str!("requests/responses_tools.json"), "system user", 1),
        (Door::Responses, include_str!("requests/responses_second_turn.json"), second, 1),
        (Door::Responses, include_str!("requests/responses_structured.json"), "user", 0),
        (Door::Responses, include_str!("requests/responses_image_stream.json"), "user", 0),
        (Door::Messages, include_str!("requests/messages_tools.json"), "system user", 1),
        (
            Door::Messages,
            include_str!("requests/messages_second_turn.json"),
            "user assistant tool tool user",
            1,
        ),
        (Door::Messages, include_str!("requests/messages_structured.json"), "user", 0),
        (Door::Messages, include_str!("requests/messages_image_stream.json"), "user", 0),
        (Door::CountTokens, include_str!("requests/count_tokens.json"), "system user", 1),
    ] {
        let chat = chat_of(door, body);
        let actual: Vec<&str> = chat.messages.iter().map(|message| &*message.role).collect();
        assert_eq!((roles, tools), (&*actual.join(" "), chat.tools.len()), "{body}");
        let is_second = roles.starts_with(second);
        let assistant = chat.messages.iter().find(|message| message.role == "assistant");
        let calls = assistant.map(|it| (it.tool_calls.len(), &*it.reasoning, it.content.len()));
        assert_eq!(is_second.then_some((2, "Let me think.", 1)), calls, "{body}");
    }
}

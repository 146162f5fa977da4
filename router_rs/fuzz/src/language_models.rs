//! Language models: the APIs in front of an engine, and the engine's messages.

use router_llm::fuzzing;

/// The body of a client, for one of the APIs.
pub fn llm_requests(data: &[u8]) {
    fuzzing::request(data);
}

/// What an engine answers, for one of the APIs.
pub fn llm_answers(data: &[u8]) {
    fuzzing::answer(data);
}

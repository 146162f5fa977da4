#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| router_fuzz::llm_answers(data));

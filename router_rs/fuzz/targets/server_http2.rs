#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| router_fuzz::server_http2(data));

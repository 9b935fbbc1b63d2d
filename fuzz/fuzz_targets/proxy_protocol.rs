#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| proxy_protocol::fuzz::proxy_protocol(bytes));

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| classify::fuzz::sessions(bytes));

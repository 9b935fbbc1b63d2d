#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| programs::fuzz::fastcgi_answers(bytes));

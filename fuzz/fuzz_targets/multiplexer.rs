#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ttrpc_keepalive_fuzz::multiplexer::check(data));

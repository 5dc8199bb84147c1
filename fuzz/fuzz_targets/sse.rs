//! A stream of server-sent events, split where the input specifies.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::sse(input));

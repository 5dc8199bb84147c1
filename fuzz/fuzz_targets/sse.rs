//! A stream of Server-Sent Events, cut wherever the input says.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::sse(input));

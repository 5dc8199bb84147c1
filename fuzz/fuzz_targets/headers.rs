//! Encoding and decoding of header values.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::headers(input));

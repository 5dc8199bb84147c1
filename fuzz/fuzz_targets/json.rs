//! JSON text, and scripts for writing some.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::json(input));

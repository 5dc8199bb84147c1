//! One message of a line, an event or a body.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::message(input));

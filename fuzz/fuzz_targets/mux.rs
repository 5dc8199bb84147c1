//! Two connected muxes, driven by a list of operations.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_core::fuzzing::mux(input));

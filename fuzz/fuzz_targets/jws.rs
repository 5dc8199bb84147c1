//! Signed tokens (JWS) and DPoP proofs.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_auth::fuzzing::jws(input));

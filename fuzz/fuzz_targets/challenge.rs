//! `WWW-Authenticate` challenges, and the URLs that a client requests because of them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bowline_auth::fuzzing::challenge(input));

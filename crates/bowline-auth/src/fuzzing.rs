//! What must hold for every input from servers, issuers and browsers, as functions that panic when it does not.
//!
//! The fuzz targets call them with whatever a fuzzer finds; the tests below call them with the seeds in
//! `fuzz/corpus` and with random mutations of these.

use bowline::http::client::Challenge;

use crate::{client, server};

/// Reads the input as the challenges of a server: a client asks nobody whom it must not ask.
pub fn challenge(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let challenges = Challenge::parse_all([&*text]);
    client::fuzzing::follow(&challenges);
}

/// Reads the input as a token and as a DPoP proof: whoever has not signed it comes in by neither.
pub fn jws(input: &[u8]) {
    server::fuzzing::verify(&String::from_utf8_lossy(input));
}

/// Reads the input as an issuer's set of keys: those that are read can be used, and there are not too many.
pub fn jwks(input: &[u8]) {
    server::fuzzing::read_keys(input);
}

/// Reads the input as the head of a request to the loopback listener, and as the address that a person came back to:
/// a code counts only with the state and the issuer that were written down.
pub fn callback(input: &[u8]) {
    client::fuzzing::come_back(input);
}

#[cfg(test)]
mod tests;

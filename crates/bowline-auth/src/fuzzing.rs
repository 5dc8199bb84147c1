//! Properties that hold for every input from servers, issuers and browsers; each function panics on a violation.
//!
//! The fuzz targets call them with generated inputs; the tests below call them with the seeds in `fuzz/corpus` and
//! with random mutations of those seeds.

use bowline::http::client::Challenge;

use crate::{client, server};

/// Parses the input as `WWW-Authenticate` challenges: the client only sends requests to URLs that the address policy
/// admits.
pub fn challenge(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let challenges = Challenge::parse_all([&*text]);
    client::fuzzing::follow_challenges(&challenges);
}

/// Parses the input as an access token and as a DPoP proof: neither is accepted without a valid signature.
pub fn jws(input: &[u8]) {
    server::fuzzing::verify(&String::from_utf8_lossy(input));
}

/// Parses the input as a JWK set: parsed keys are usable, and their number is bounded.
pub fn jwks(input: &[u8]) {
    server::fuzzing::read_keys(input);
}

/// Parses the input as a request head to the loopback listener and as a redirect URL: an authorization code is only
/// accepted with the expected `state` and `iss`.
pub fn callback(input: &[u8]) {
    client::fuzzing::handle_redirect(input);
}

#[cfg(test)]
mod tests;

//! Signed tokens (JWS) and DPoP proofs.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_auth::server::fuzzing::jws);

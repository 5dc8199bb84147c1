//! JSON Web Key Sets.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_auth::server::fuzzing::jwks);

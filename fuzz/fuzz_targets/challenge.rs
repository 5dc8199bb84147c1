//! `WWW-Authenticate` challenges, and the URLs that a client requests because of them.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_auth::client::fuzzing::challenge);

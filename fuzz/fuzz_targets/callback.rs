//! The redirect from an authorization server.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_auth::client::fuzzing::callback);

//! A raw HTTP client and a scripted HTTP server, for scenarios that test one end of HTTP only.

mod raw_client;
pub use raw_client::{RawHttpClient, RawHttpRequest, RawHttpResponse};

mod scripted_server;
pub use scripted_server::{
    ReceivedRequest, ScriptedHttpServer, ScriptedResponse, default_response, initialize_result,
};

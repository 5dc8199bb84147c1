//! The test program of all scenarios.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario reports its failure by panicking"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "scenarios pass temporaries by value"
)]

mod authorization;
mod cancellation;
mod client_authorization;
mod client_authorization_discovery;
mod client_authorization_grants;
mod client_authorization_registration;
mod clients;
mod elicitation;
mod flows;
mod http_client;
mod http_client_legacy;
mod http_server;
mod http_server_legacy;
mod http_transport;
mod lifecycle;
mod lists;
mod logging;
mod multi_round_trip;
mod progress;
mod prompts;
mod protected_server;
mod protocol;
mod resources;
mod sampling;
mod stdio;
mod subscriptions;
mod support;
mod tools;
mod typed_tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = [
        lifecycle::scenarios(),
        protocol::scenarios(),
        cancellation::scenarios(),
        progress::scenarios(),
        tools::scenarios(),
        typed_tools::scenarios(),
        resources::scenarios(),
        subscriptions::scenarios(),
        prompts::scenarios(),
        lists::scenarios(),
        elicitation::scenarios(),
        sampling::scenarios(),
        multi_round_trip::scenarios(),
        clients::scenarios(),
        logging::scenarios(),
        flows::scenarios(),
        stdio::scenarios(),
        http_transport::scenarios(),
        authorization::scenarios(),
        client_authorization::scenarios(),
        client_authorization_discovery::scenarios(),
        client_authorization_registration::scenarios(),
        client_authorization_grants::scenarios(),
        http_server::scenarios(),
        http_server_legacy::scenarios(),
        http_client::scenarios(),
        http_client_legacy::scenarios(),
    ];
    scenarios::runner::main(&scenarios.concat())
}

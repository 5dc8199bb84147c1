//! Every scenario, by what it is about.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario says by panicking what it saw"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "what a scenario makes on the spot it hands over"
)]

mod authorization;
mod cancelling;
mod client_authorization;
mod client_authorization_discovery;
mod client_authorization_grants;
mod client_authorization_registration;
mod clients;
mod elicitation;
mod flows;
mod functions;
mod guarded;
mod hosting;
mod hosting_legacy;
mod http;
mod http_clients;
mod http_clients_legacy;
mod lifecycle;
mod lists;
mod logging;
mod progress;
mod prompts;
mod protocol;
mod resources;
mod rounds;
mod sampling;
mod stdio;
mod subscriptions;
mod support;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = [
        lifecycle::scenarios(),
        protocol::scenarios(),
        cancelling::scenarios(),
        progress::scenarios(),
        tools::scenarios(),
        functions::scenarios(),
        resources::scenarios(),
        subscriptions::scenarios(),
        prompts::scenarios(),
        lists::scenarios(),
        elicitation::scenarios(),
        sampling::scenarios(),
        rounds::scenarios(),
        clients::scenarios(),
        logging::scenarios(),
        flows::scenarios(),
        stdio::scenarios(),
        http::scenarios(),
        authorization::scenarios(),
        client_authorization::scenarios(),
        client_authorization_discovery::scenarios(),
        client_authorization_registration::scenarios(),
        client_authorization_grants::scenarios(),
        hosting::scenarios(),
        hosting_legacy::scenarios(),
        http_clients::scenarios(),
        http_clients_legacy::scenarios(),
    ];
    scenarios::runner::main(&scenarios.concat())
}

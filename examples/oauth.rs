//! A server that requires OAuth access tokens, and a miniature authorization server that issues them.
//!
//! `cargo run --example oauth` prints both addresses; other ones can be given as arguments. A client that connects to
//! `http://127.0.0.1:8000/mcp` is refused with 401, finds the authorization server by the server's metadata, registers
//! there, and opens its consent page in the user's browser. After that, `whoami` returns the user and the scopes of the
//! token. A call of `forget` needs another scope, for which the user is asked again.

use std::env;
use std::error::Error;

use bowline::exchange::Principal;
use bowline::prelude::*;
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::AuthorizationServer;

/// Returns the user, and the scopes of the access token.
#[tool]
async fn whoami(caller: Principal) -> String {
    let scopes: Vec<_> = caller.scopes().collect();
    format!(
        "{} ({})",
        caller.name().unwrap_or("anonymous"),
        scopes.join(", ")
    )
}

/// Deletes all notes.
#[tool(scopes("notes:write"), destructive)]
async fn forget() -> &'static str {
    "forgotten"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut addresses = env::args().skip(1);
    let mut address = |default: &str| addresses.next().unwrap_or_else(|| default.to_owned());

    // A real server has an authorization server already, and needs the second half only.
    let listener = tokio::net::TcpListener::bind(address("127.0.0.1:9000")).await?;
    let issuer = format!("http://{}", listener.local_addr()?);
    let server = Server::new("notes", "1.0.0").tool(whoami).tool(forget);
    let bound = server.http().bind(address("127.0.0.1:8000")).await?;
    let resource = format!("http://{}/mcp", bound.local_addr());
    let scopes = ["notes:read", "notes:write"];
    let authorization = AuthorizationServer::new(&issuer).resource(&resource, &scopes);

    let guard = ResourceServer::new(&resource, &issuer, JwtVerifier::discover(&issuer)?)?
        .name("Notes")
        .scopes(["notes:read"])
        .optional_scopes(["notes:write"]);
    eprintln!("{resource} accepts tokens issued by {issuer}");
    tokio::select! {
        served = bound.layer(guard).serve() => served?,
        issued = axum::serve(listener, authorization.router()) => issued?,
    }
    Ok(())
}

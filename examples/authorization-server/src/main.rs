//! A protected MCP server, and an authorization server that issues tokens for it.
//!
//! `cargo run -p bowline-example-authorization-server`, then point a client at `http://127.0.0.1:8000/mcp`.

use bowline::prelude::*;
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::AuthorizationServer;

/// Returns the principal of the call and the scopes of its token.
#[tool]
async fn whoami(principal: bowline::exchange::Principal) -> String {
    let scopes: Vec<_> = principal.scopes().collect();
    format!(
        "{} ({})",
        principal.name().unwrap_or("anonymous"),
        scopes.join(", ")
    )
}

/// Deletes all notes. Requires the scope `notes:write`; a client without it gets a scope challenge.
#[tool(scopes("notes:write"), destructive)]
async fn forget() -> &'static str {
    "forgotten"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:9000").await?;
    let authorization =
        AuthorizationServer::new(ISSUER).resource(RESOURCE, &["notes:read", "notes:write"]);
    let issuing = axum::serve(listener, authorization.router());

    let keys = JwtVerifier::discover(ISSUER)?;
    let guard = ResourceServer::new(RESOURCE, ISSUER, keys)?
        .name("Notes")
        .scopes(["notes:read"])
        .optional_scopes(["notes:write"]);
    let server = Server::new("notes", "1.0.0").tool(whoami).tool(forget);
    let bound = server.http().bind("127.0.0.1:8000").await?;
    eprintln!("{RESOURCE} accepts tokens issued by {ISSUER}");
    // Both run until one of them fails.
    tokio::select! {
        served = bound.layer(guard).serve() => served?,
        issued = issuing => issued?,
    }
    Ok(())
}

const ISSUER: &str = "http://127.0.0.1:9000";
const RESOURCE: &str = "http://127.0.0.1:8000/mcp";

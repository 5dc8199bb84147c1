//! An MCP server in an axum application that admits only requests with a known bearer token.
//!
//! `cargo run --example axum_bearer` listens on `http://127.0.0.1:8000/mcp`, or on the address in its first argument.
//! Requests without a token get status 401. With `Authorization: Bearer token-of-ada`, the tool `whoami` returns `ada`;
//! a client sends that header with `Client::connect(url).bearer("token-of-ada")`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use bowline::exchange::Principal;
use bowline::prelude::{Server, tool};
use sha2::{Digest, Sha256};

/// Returns the name of the caller.
#[tool]
async fn whoami(caller: Principal) -> String {
    caller.name().unwrap_or("anonymous").to_owned()
}

/// Known tokens, by their digests: how long a lookup takes tells nothing about a token.
type Tokens = Arc<BTreeMap<[u8; 32], &'static str>>;

/// Admits a request with a known token, and adds its principal for the handlers.
async fn check_token(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION);
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let name = token.and_then(|token| tokens.get(&<[u8; 32]>::from(Sha256::digest(token))));
    let Some(&name) = name else {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    request.extensions_mut().insert(Principal::named(name));
    next.run(request).await
}

#[tokio::main]
async fn main() -> io::Result<()> {
    // In a real program these come from a secret store.
    let tokens = [("token-of-ada", "ada"), ("token-of-grace", "grace")];
    let tokens: Tokens = Arc::new(
        tokens
            .map(|(token, name)| (Sha256::digest(token).into(), name))
            .into(),
    );

    let mcp = Server::new("who", "1.0.0").tool(whoami).http();
    let app = Router::new()
        .route_service("/mcp", mcp.clone())
        .layer(from_fn_with_state(tokens, check_token));

    let address = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let stop = async move {
        let _ = tokio::signal::ctrl_c().await;
        mcp.shut_down(Duration::from_secs(5)); // ends subscriptions, for which axum would wait
    };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
}

//! The server of the matrix, whose handlers are counted.

use bowline::Server;
use bowline::exchange::{Outcome, Request};
use bowline::layer::Next;
use serde_json::Value;

use crate::handler_monitor::HandlerMonitor;

/// Adds to the server of `handlers` that pages of `tools/list` and subscriptions are counted as handlers.
pub(crate) fn server(handlers: &HandlerMonitor) -> Server {
    let handlers = handlers.clone();
    let server = handlers.server().page_size(1);
    server.layer(move |request, next| intercept(handlers.clone(), request, next))
}

/// Blocks every page of `tools/list` but the first, and counts resource subscriptions as running handlers.
async fn intercept(handlers: HandlerMonitor, request: Request, next: Next) -> Outcome {
    let params: Value = request.params.decode().unwrap();
    match &*request.method {
        "tools/list" if params["cursor"].is_string() => {
            let release = handlers.wait_for_release("pages");
            handlers.counter.run(release).await;
            next.run(request).await
        }
        "subscriptions/listen" if params["notifications"]["resourceSubscriptions"].is_array() => {
            handlers.counter.run(next.run(request)).await
        }
        _ => next.run(request).await,
    }
}

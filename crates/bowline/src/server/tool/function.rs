//! Functions behind tools: extract, run, and turn what comes out into a result.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;

use bowline_types::{CallToolResult, ErrorCode, Json, RpcError};
use tokio::task::JoinHandle;

use crate::exchange::{BoxFuture, Context};
use crate::server::extract::{ExtractError, Given, Parameters};
use crate::server::handler::{BlockingHandler, Handler};
use crate::server::output::IntoToolResult;

/// What is behind a [`Tool`](super::Tool).
pub trait ToolHandler: Send + Sync + 'static {
    /// Runs the tool. The future is dropped if the caller gives up.
    fn call<'a>(&'a self, given: Given) -> BoxFuture<'a, Result<CallToolResult, RpcError>>;
}

/// An `async fn` of extractors.
pub(super) struct Typed<H, E> {
    handler: H,
    parameters: PhantomData<fn(E)>,
}

impl<H, E> Typed<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler,
            parameters: PhantomData,
        }
    }
}

impl<H, E> ToolHandler for Typed<H, E>
where
    H: Handler<E, Output: IntoToolResult, Future: Send>,
    E: Parameters,
{
    fn call<'a>(&'a self, given: Given) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(async move {
            let parameters = match E::extract(&given) {
                Ok(parameters) => parameters,
                Err(error) => return not_given(error),
            };
            self.handler.run(parameters).await.into_tool_result()
        })
    }
}

/// A synchronous function of extractors, run where it holds up nobody.
pub(super) struct Blocking<H, E> {
    handler: Arc<H>,
    parameters: PhantomData<fn(E)>,
}

impl<H, E> Blocking<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            parameters: PhantomData,
        }
    }
}

impl<H, E> ToolHandler for Blocking<H, E>
where
    H: BlockingHandler<E, Output: IntoToolResult>,
    E: Parameters,
{
    fn call<'a>(&'a self, given: Given) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(async move {
            let parameters = match E::extract(&given) {
                Ok(parameters) => parameters,
                Err(error) => return not_given(error),
            };
            let handler = self.handler.clone();
            let permits = given.permits();
            let mut thread = Thread(tokio::task::spawn_blocking(move || {
                // Kept here, because the function may run on after nobody waits for it any more.
                let _permits = permits;
                handler.run(parameters).into_tool_result()
            }));
            match (&mut thread.0).await {
                Ok(result) => result,
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => Err(internal("the runtime is ending")),
            }
        })
    }
}

/// A function on a thread of its own. Dropped before it started, it never starts.
struct Thread<T>(JoinHandle<T>);

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A function of JSON.
pub(super) struct Untyped<H>(pub(super) H);

impl<H, F> ToolHandler for Untyped<H>
where
    H: Fn(Json, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<CallToolResult, RpcError>> + Send + 'static,
{
    fn call<'a>(&'a self, given: Given) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(self.0(given.arguments().clone(), given.context().clone()))
    }
}

/// Arguments that do not fit are told to the model, so that it can try again.
fn not_given(error: ExtractError) -> Result<CallToolResult, RpcError> {
    match error {
        ExtractError::Arguments(why) => Ok(super::misfit(&why)),
        ExtractError::Server(why) => {
            tracing::error!(why, "a handler could not be given what it asks for");
            Err(internal("the server is not set up for this tool"))
        }
    }
}

fn internal(why: &str) -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, why)
}

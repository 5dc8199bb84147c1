//! [`ToolHandler`], and its implementations for `async fn`s, synchronous functions and functions of JSON.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;

use bowline_types::{CallToolResult, ErrorCode, Json, RpcError};
use tokio::task::JoinHandle;

use crate::exchange::{BoxFuture, Context};
use crate::server::extract::{ExtractError, HandlerInput, Parameters};
use crate::server::handler::{BlockingHandler, Handler};
use crate::server::output::IntoToolResult;
use crate::server::tool_error::ToolError;

/// The handler of a [`Tool`](super::Tool).
pub trait ToolHandler: Send + Sync + 'static {
    /// Runs the tool. The future is dropped if the request is cancelled.
    fn call<'a>(&'a self, input: HandlerInput) -> BoxFuture<'a, Result<CallToolResult, RpcError>>;
}

/// The handler for an `async fn` of extractors.
pub(super) struct AsyncHandler<H, E> {
    handler: H,
    parameters: PhantomData<fn(E)>,
}

impl<H, E> AsyncHandler<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler,
            parameters: PhantomData,
        }
    }
}

impl<H, E> ToolHandler for AsyncHandler<H, E>
where
    H: Handler<E, Output: IntoToolResult, Future: Send>,
    E: Parameters,
{
    fn call<'a>(&'a self, input: HandlerInput) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(async move {
            let parameters = match E::extract(&input) {
                Ok(parameters) => parameters,
                Err(error) => return extract_failed(error),
            };
            self.handler.run(parameters).await.into_tool_result()
        })
    }
}

/// The handler for a synchronous function of extractors, which runs on the blocking pool.
pub(super) struct SyncHandler<H, E> {
    handler: Arc<H>,
    parameters: PhantomData<fn(E)>,
}

impl<H, E> SyncHandler<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            parameters: PhantomData,
        }
    }
}

impl<H, E> ToolHandler for SyncHandler<H, E>
where
    H: BlockingHandler<E, Output: IntoToolResult>,
    E: Parameters,
{
    fn call<'a>(&'a self, input: HandlerInput) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(async move {
            let parameters = match E::extract(&input) {
                Ok(parameters) => parameters,
                Err(error) => return extract_failed(error),
            };
            let handler = self.handler.clone();
            let permits = input.permits();
            let mut task = BlockingTask(tokio::task::spawn_blocking(move || {
                // Moved in here: after a cancel the function still runs, and must count against the limits.
                let _permits = permits;
                handler.run(parameters).into_tool_result()
            }));
            match (&mut task.0).await {
                Ok(result) => result,
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => Err(internal("the tokio runtime is shutting down")),
            }
        })
    }
}

/// A function on the blocking pool. If it is dropped before the function has started, the function never starts.
struct BlockingTask<T>(JoinHandle<T>);

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The handler for a function of JSON.
pub(super) struct JsonHandler<H>(pub(super) H);

impl<H, F> ToolHandler for JsonHandler<H>
where
    H: Fn(Json, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<CallToolResult, ToolError>> + Send + 'static,
{
    fn call<'a>(&'a self, input: HandlerInput) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        let output = self.0(input.arguments().clone(), input.context().clone());
        Box::pin(async { output.await.into_tool_result() })
    }
}

/// Reports invalid arguments to the model, which can correct them, and a missing value to the client.
fn extract_failed(error: ExtractError) -> Result<CallToolResult, RpcError> {
    match error {
        ExtractError::Arguments(why) => Ok(super::invalid_arguments(&why)),
        ExtractError::Server(why) => {
            tracing::error!(why, "failed to extract a parameter of a handler");
            Err(internal("the server lacks a value that this tool requires"))
        }
    }
}

fn internal(why: &str) -> RpcError {
    RpcError::new(ErrorCode::INTERNAL_ERROR, why)
}

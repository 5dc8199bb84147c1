//! Tools: functions that a model may call.

use std::future::Future;
use std::sync::Arc;

use bowline_types::{CallToolResult, ErrorCode, Json, RpcError};

use crate::exchange::{BoxFuture, CancelMode, Context};

/// A tool and the handler behind it.
#[derive(Clone)]
#[must_use = "a tool is offered by `Server::tool`"]
pub struct Tool {
    definition: bowline_types::Tool,
    handler: Arc<dyn ToolHandler>,
    cancel_mode: CancelMode,
}

/// What is behind a [`Tool`].
pub trait ToolHandler: Send + Sync + 'static {
    /// Runs the tool. The future is dropped if the caller gives up.
    fn call<'a>(
        &'a self,
        arguments: Json,
        cx: Context,
    ) -> BoxFuture<'a, Result<CallToolResult, RpcError>>;
}

impl Tool {
    /// A tool without Rust types: JSON in, and a schema in words of your own.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{CallToolResult, Tool};
    /// use serde_json::json;
    ///
    /// let echo = Tool::raw("echo", json!({"type": "object"}), async |arguments, _cx| {
    ///     Ok(CallToolResult::text(arguments.to_string()))
    /// })
    /// .description("Says what it was told.");
    /// ```
    pub fn raw<H, F>(name: impl Into<String>, schema: impl Into<Json>, handler: H) -> Self
    where
        H: Fn(Json, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<CallToolResult, RpcError>> + Send + 'static,
    {
        Self {
            definition: bowline_types::Tool::new(name, schema),
            handler: Arc::new(Function(handler)),
            cancel_mode: CancelMode::default(),
        }
    }

    /// Says what the tool does, for the model.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Decides what becomes of the handler when its caller gives up.
    pub fn cancel_mode(mut self, mode: CancelMode) -> Self {
        self.cancel_mode = mode;
        self
    }

    /// The name under which it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(super) fn definition(&self) -> &bowline_types::Tool {
        &self.definition
    }

    pub(super) fn handler(&self) -> &dyn ToolHandler {
        &*self.handler
    }

    pub(super) fn mode(&self) -> CancelMode {
        self.cancel_mode
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// A function as a handler.
struct Function<H>(H);

impl<H, F> ToolHandler for Function<H>
where
    H: Fn(Json, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<CallToolResult, RpcError>> + Send + 'static,
{
    fn call<'a>(
        &'a self,
        arguments: Json,
        cx: Context,
    ) -> BoxFuture<'a, Result<CallToolResult, RpcError>> {
        Box::pin(self.0(arguments, cx))
    }
}

/// The error for params or arguments of the wrong shape.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
pub fn invalid_params(error: serde_json::Error) -> RpcError {
    RpcError::new(
        ErrorCode::INVALID_PARAMS,
        format!("invalid params: {error}"),
    )
}

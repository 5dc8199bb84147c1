//! `tools/call`: finds the tool, checks the call, and runs the tool, through the extensions that the caller declared.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bowline_core::era::Request;
use bowline_core::json::Params;
use bowline_core::{Outcome, shortened};
use bowline_types::{CallToolRequest, ErrorCode, Json, Method, RpcError};
use tokio::sync::OwnedSemaphorePermit;

use super::definition::ServerDefinition;
use super::extension::RegisteredExtension;
use super::registry::RegistryEntry;
use super::router::{or_ready_error, ready, serialize_failed};
use super::snapshot::{ServerShared, ServerSnapshot};
use super::tool::{CallRefusal, invalid_params};
use super::{HandlerInput, Server, Tool};
use crate::exchange::{BoxFuture, Context, HandlerControl, InsufficientScope, RunningHandler};
use crate::layer::Next;

/// Answers `tools/call`.
pub(super) fn call_tool<'a>(
    server: &'a ServerSnapshot,
    request: Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    let definition = &server.definition;
    if !definition.extensions.is_empty() {
        let extensions = definition.extensions.iter();
        let active = extensions.filter(|extension| extension.is_active_for(&request.caller));
        // The outermost last, because it is taken first.
        let interceptors: Vec<_> = active.rev().cloned().collect();
        if !interceptors.is_empty() {
            return intercept(server, interceptors, request, cx);
        }
    }
    let permit = definition.handlers.try_acquire()?;
    let params = CallToolParams::read(&request.params)?;
    let entry = find_tool(definition, &params, &cx)?;
    check_declared_by_legacy(definition, &entry.item, &request)?;
    if entry.item.layers().is_empty() {
        return call_inside_layers(definition, entry, params, cx, permit, CallChecks::Pending);
    }
    let call = call_through_layers(definition, &entry, request, cx);
    Ok(Box::pin(async move {
        let _permit = permit;
        call.await
    }))
}

/// Passes a checked call to the extensions that the caller declared.
fn intercept<'a>(
    server: &'a ServerSnapshot,
    interceptors: Vec<Arc<RegisteredExtension>>,
    request: Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    let is_legacy = !request.caller.dialect.is_modern();
    let call = ToolCall::checked(
        server.shared.shared(),
        server.definition.clone(),
        interceptors,
        request,
        &cx,
    );
    match call {
        Ok(call) => Ok(Box::pin(call.run(cx))),
        Err(CallRefusal::Error(error)) => Err(error),
        // A legacy client has requested another result than that of a tool, and could not decode it.
        Err(refusal) if is_legacy => Err(refusal.into_error()),
        Err(refusal @ CallRefusal::Arguments(_)) => Ok(ready(
            refusal.into_result()?.to_json().map_err(serialize_failed),
        )),
    }
}

/// Finds the called tool, and checks that the caller may see and call it.
fn find_tool(
    definition: &ServerDefinition,
    params: &CallToolParams,
    cx: &Context,
) -> Result<Arc<RegistryEntry<Tool>>, RpcError> {
    let name = params.name()?;
    let tools = definition.tools.snapshot();
    let visible = tools.find(&*name).filter(|entry| entry.is_visible_to(cx));
    let entry = visible.cloned().ok_or_else(|| {
        let why = format!("unknown tool `{}`", shortened(name));
        RpcError::new(ErrorCode::INVALID_PARAMS, why)
    })?;
    InsufficientScope::check(entry.item.required_scopes(), cx.principal())?;
    Ok(entry)
}

/// Checks that a legacy caller has declared the extensions that the tool requires, in the way of its version. The
/// capabilities of all callers are checked later.
fn check_declared_by_legacy(
    definition: &ServerDefinition,
    tool: &Tool,
    request: &Request,
) -> Result<(), RpcError> {
    let required = tool.required_extensions();
    let mut extensions = definition.extensions.iter();
    let refusal = extensions.find_map(|it| it.undeclared_error(&request.caller, required));
    refusal.map_or(Ok(()), Err)
}

/// Calls a tool through its layers.
fn call_through_layers(
    definition: &Arc<ServerDefinition>,
    entry: &Arc<RegistryEntry<Tool>>,
    request: Request,
    cx: Context,
) -> BoxFuture<'static, Outcome> {
    let (definition, inner_entry) = (definition.clone(), entry.clone());
    let inner = move |request: Request, cx| {
        // Read again, because a layer may have changed the request.
        let call = CallToolParams::read(&request.params).and_then(|params| {
            let entry = inner_entry.clone();
            call_inside_layers(&definition, entry, params, cx, (), CallChecks::Pending)
        });
        or_ready_error(call)
    };
    Next::new(entry.item.layers(), inner, cx).run(request)
}

/// Calls a tool, inside its layers. `permit` is held until the call has ended.
fn call_inside_layers<'a>(
    definition: &ServerDefinition,
    entry: Arc<RegistryEntry<Tool>>,
    params: CallToolParams,
    mut cx: Context,
    permit: impl Send + 'a,
    checks: CallChecks,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    cx.extensions_mut().extend(&entry.state);
    let arguments = params.arguments.unwrap_or_else(Json::empty_object);
    let mut input = HandlerInput::new(arguments, cx).with_meta(params.meta);
    if entry.item.is_blocking() {
        input.hold_permit(definition.blocking.try_acquire_owned()?);
    }
    // Allocated for each call: the future captures as little as possible.
    Ok(Box::pin(async move {
        let _permit = permit;
        // Set at the first poll, and not earlier: a handler that was never polled has not started.
        if !input
            .context()
            .set_cancel_mode(entry.item.handler_cancel_mode())
        {
            return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "cancelled"));
        }
        let result = match checks {
            CallChecks::Pending => entry.item.call(input).await?,
            CallChecks::Done => entry.item.call_checked(input).await?,
        };
        result.to_json().map_err(serialize_failed)
    }))
}

/// Whether the capabilities and arguments of a call are known to be valid.
#[derive(Clone, Copy)]
enum CallChecks {
    Pending,
    Done,
}

/// A call of a tool that has passed all checks and has not run yet, for
/// [`ServerExtension::call_tool`](super::ServerExtension::call_tool).
///
/// It owns everything that it needs, so it can run after its request has ended. It counts as a running handler
/// ([`Limits::handlers`](crate::Limits::handlers)) until it is dropped.
#[must_use = "the tool runs only if `run` is called"]
pub struct ToolCall {
    server: Arc<ServerShared>,
    definition: Arc<ServerDefinition>,
    entry: Arc<RegistryEntry<Tool>>,
    name: String,
    request: Request,
    arguments: Json,
    meta: Option<Json>,
    /// The extensions that the call passes before it reaches the tool, the outermost last.
    interceptors: Vec<Arc<RegisteredExtension>>,
    permit: OwnedSemaphorePermit,
}

impl ToolCall {
    fn checked(
        server: Arc<ServerShared>,
        definition: Arc<ServerDefinition>,
        interceptors: Vec<Arc<RegisteredExtension>>,
        request: Request,
        cx: &Context,
    ) -> Result<Self, CallRefusal> {
        let permit = definition.handlers.try_acquire_owned();
        let permit = permit.map_err(RpcError::from)?;
        let params = CallToolParams::read(&request.params)?;
        let entry = find_tool(&definition, &params, cx)?;
        check_declared_by_legacy(&definition, &entry.item, &request)?;
        let name = params.name()?.into_owned();
        let arguments = params.arguments.unwrap_or_else(Json::empty_object);
        entry
            .item
            .check_call(&arguments, &request.caller.capabilities)?;
        Ok(Self {
            server,
            definition,
            entry,
            name,
            request,
            arguments,
            meta: params.meta,
            interceptors,
            permit,
        })
    }

    /// Returns the name by which the tool was called. A [mounted](Server::mount) tool has a prefix in it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tool.
    pub fn tool(&self) -> &Tool {
        &self.entry.item
    }

    /// Returns the arguments, a JSON object that matches the input schema.
    #[must_use]
    pub fn arguments(&self) -> &Json {
        &self.arguments
    }

    /// Returns the `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_ref()
    }

    /// Returns the request, `tools/call`.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Runs the tool: its layers, extractors, handler and output checks.
    ///
    /// `cx` is the context of the request, or another one for a call that outlives it: then the server, its state and
    /// its logger are set in it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler, and cancels `cx`.
    pub fn run(mut self, mut cx: Context) -> RunningTool {
        if cx.shared_server().is_none() {
            self.definition.prepare(&mut cx, &self.server);
        }
        let control = cx.control();
        let call: BoxFuture<'static, Outcome> = match self.interceptors.pop() {
            Some(next) => Box::pin(async move { next.extension.call_tool(self, cx).await }),
            None => self.run_tool(cx),
        };
        RunningTool(RunningHandler::new(call, control))
    }

    fn run_tool(self, cx: Context) -> BoxFuture<'static, Outcome> {
        if !self.entry.item.layers().is_empty() {
            let permit = self.permit;
            let call = call_through_layers(&self.definition, &self.entry, self.request, cx);
            return Box::pin(async move {
                let _permit = permit;
                call.await
            });
        }
        let params = CallToolParams {
            name: Json::null(),
            arguments: Some(self.arguments),
            meta: self.meta,
        };
        or_ready_error(call_inside_layers(
            &self.definition,
            self.entry,
            params,
            cx,
            self.permit,
            CallChecks::Done,
        ))
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCall")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// A running tool, and the future of its outcome; returned by [`ToolCall::run`]. A panic of the tool becomes an error.
///
/// # Cancel safety
///
/// Dropping it drops the handler, and cancels its context.
#[must_use = "dropping it stops the tool"]
pub struct RunningTool(RunningHandler);

impl RunningTool {
    /// Returns the handle that signals the handler.
    #[must_use]
    pub fn control(&self) -> &HandlerControl {
        self.0.control()
    }
}

impl Future for RunningTool {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for RunningTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTool").finish_non_exhaustive()
    }
}

impl Server {
    /// Prepares a call of a tool outside of a request, for example to resume one that another process has started.
    ///
    /// The checks are those of a request with the caller and the principal of `cx`. The call does not pass through the
    /// [extensions](super::ServerExtension::call_tool) of the server.
    ///
    /// # Errors
    ///
    /// If the tool is unknown or not visible, a scope or capability is missing, the arguments are invalid, or a limit
    /// is reached.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::exchange::Outcome;
    /// use bowline::{Context, Json, Server};
    ///
    /// async fn resume(server: &Server, cx: Context) -> Outcome {
    ///     let call = server.tool_call("import", Json::empty_object(), None, &cx)?;
    ///     call.run(cx).await
    /// }
    /// ```
    #[allow(clippy::needless_pass_by_value, reason = "the call owns them")]
    pub fn tool_call(
        &self,
        name: &str,
        arguments: Json,
        meta: Option<Json>,
        cx: &Context,
    ) -> Result<ToolCall, RpcError> {
        let name = Json::encode(name).map_err(serialize_failed)?;
        let members = [("name", &name), ("arguments", &arguments)];
        let meta = meta.iter().map(|meta| ("_meta", meta));
        let params = Json::object(members.into_iter().chain(meta));
        let request = Request::new(CallToolRequest::NAME, params, cx.caller().clone());
        let (server, definition) = (self.shared.shared(), self.definition());
        let call = ToolCall::checked(server, definition, Vec::new(), request, cx);
        call.map_err(CallRefusal::into_error)
    }
}

/// The members of the params of `tools/call` that the router reads.
pub(super) struct CallToolParams {
    name: Json,
    arguments: Option<Json>,
    meta: Option<Json>,
}

impl CallToolParams {
    pub(super) fn read(params: &Params) -> Result<Self, RpcError> {
        let invalid = |why| RpcError::new(ErrorCode::INVALID_PARAMS, why);
        let member = |name| {
            let found = params.member(name);
            found.map_err(|why| invalid(format!("`params`: {}", shortened(why))))
        };
        let name = member("name")?.ok_or_else(|| invalid("`name` is missing".to_owned()))?;
        let arguments = member("arguments")?.filter(|arguments| !arguments.is_null());
        if arguments.as_ref().is_some_and(|it| !it.is_object()) {
            return Err(invalid("`arguments` must be an object".to_owned()));
        }
        Ok(Self {
            name,
            arguments,
            meta: member("_meta")?.filter(|meta| !meta.is_null()),
        })
    }

    pub(super) fn name(&self) -> Result<Cow<'_, str>, RpcError> {
        self.name.text().map_err(invalid_params)
    }
}

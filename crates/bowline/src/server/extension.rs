//! [`ServerExtension`], a protocol extension of a server: methods, an interceptor of tool calls, and notifications.
//!
//! ```text
//! request ─▶ layers ─┬─ a method of an extension ─▶ declared? ─▶ ServerExtension::respond
//!                    ├─ tools/call ─▶ lookup, scopes, arguments ─▶ declared? ─▶ ServerExtension::call_tool ─▶ tool
//!                    └─ subscriptions/listen with its filter members ─▶ declared? ─▶ ServerExtension::subscribe
//! ```

mod background;
pub(super) use background::BackgroundTasks;
pub use background::WeakServer;

mod registered;
pub(super) use registered::RegisteredExtension;

mod subscription;
pub use subscription::{ExtensionSubscription, SubscriptionNotifier};
pub(super) use subscription::{OpenedFilter, requested_filters};

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::{Dialect, Request};
use bowline_types::{ErrorCode, Json, RpcError, ServerCapabilities};

use super::{Server, ToolCall};
use crate::exchange::{BoxFuture, Context};

/// A protocol extension of a server; added with [`Server::extension`].
///
/// An extension has an identifier and settings, which `server/discover` advertises. It may define methods, run tool
/// calls in a way of its own, and send notifications to subscribers.
///
/// It is active for callers that declare its identifier in the capabilities of the request. A request for one of its
/// methods, or a subscription with one of its filter members, is refused with `-32021` otherwise, and a tool call runs
/// as usual. Callers of a protocol version in which it is not [available](Self::is_available_in) get `-32601`.
///
/// A panic of the extension ends the request only.
///
/// # Examples
///
/// ```
/// use bowline::exchange::{BoxFuture, Outcome, Request};
/// use bowline::server::{ExtensionMethod, ServerExtension};
/// use bowline::{Client, Context, Json, Server};
/// use serde_json::json;
///
/// struct Echo;
///
/// impl ServerExtension for Echo {
///     fn id(&self) -> &str {
///         "com.example/echo"
///     }
///     fn methods(&self) -> Vec<ExtensionMethod> {
///         vec![ExtensionMethod::new("echo/repeat")]
///     }
///     fn respond<'a>(&'a self, _: Request, cx: Context) -> BoxFuture<'a, Outcome> {
///         Box::pin(async move { Ok(json!({"id": cx.request_id()}).into()) })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let server = Server::new("echo", "1.0.0").extension(Echo);
/// let client = Client::in_process(&server).await?;
///
/// // The client does not declare the extension.
/// let refused = client.request_raw("echo/repeat", ()).await;
/// let Err(bowline::Error::Rpc(error)) = refused else { panic!("the request was not refused") };
/// assert_eq!(error.code, bowline::ErrorCode::MISSING_CLIENT_CAPABILITY);
/// # Ok(()) }
/// ```
pub trait ServerExtension: Send + Sync + 'static {
    /// Returns the identifier, such as `com.example/drawing`.
    fn id(&self) -> &str;

    /// Returns the settings in `capabilities.extensions` of `server/discover`, a JSON object. Empty by default.
    fn settings(&self) -> Json {
        Json::empty_object()
    }

    /// Returns whether callers of this protocol version can use the extension. By default those of the modern era can:
    /// legacy versions have no extensions.
    fn is_available_in(&self, dialect: &Dialect) -> bool {
        dialect.is_modern()
    }

    /// Returns whether a request of a legacy protocol version declares the extension. By default none does: legacy
    /// versions have no extensions, and their clients use what became an extension in another way.
    ///
    /// Called only for versions in which the extension is [available](Self::is_available_in). Callers of the modern era
    /// declare it in their capabilities.
    fn is_declared_by_legacy(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// Returns the error of a tool call that requires the extension and does not declare it, for callers of a legacy
    /// version in which the extension is [available](Self::is_available_in). By default it is that of the modern era
    /// with a code that the version defines.
    fn undeclared_error(&self, dialect: &Dialect) -> Option<RpcError> {
        let _ = dialect;
        None
    }

    /// Changes the capabilities that the server advertises to a caller of a protocol version in which the extension is
    /// [available](Self::is_available_in); they contain the extension with its settings. By default they stay the same.
    ///
    /// In the modern era they must be the same for all callers, because clients may cache them.
    fn adjust_capabilities(&self, cx: &Context, capabilities: &mut ServerCapabilities) {
        let _ = (cx, capabilities);
    }

    /// Returns the methods that the extension adds; may be empty. Called once.
    fn methods(&self) -> Vec<ExtensionMethod>;

    /// Answers a request for one of its [methods](Self::methods). The caller has declared the extension.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the request is cancelled.
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome>;

    /// Runs a tool call of a caller that has declared the extension. By default it runs the call as usual.
    ///
    /// The tool exists, the caller may see and call it, and the arguments match its schema. Its layers and its handler
    /// have not run yet; [`ToolCall::run`] runs them. The result may have a `resultType` of the extension, and for a
    /// legacy caller any form that its version defines. The first extension that was added is the outermost.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the request is cancelled, or when the handler needs input from the client; then the
    /// client sends the request again.
    fn call_tool<'a>(&'a self, call: ToolCall, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(call.run(cx))
    }

    /// Returns the members of a subscription filter that the extension handles, such as `taskIds`. None by default.
    fn filter_members(&self) -> &[&str] {
        &[]
    }

    /// Opens its part of a subscription whose filter has at least one of its [members](Self::filter_members); `filter`
    /// contains those. By default it fails, because an extension without filter members has no subscriptions.
    ///
    /// # Errors
    ///
    /// The error refuses the whole subscription.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the request is cancelled.
    fn subscribe<'a>(
        &'a self,
        filter: BTreeMap<String, Json>,
        cx: Context,
    ) -> BoxFuture<'a, Result<ExtensionSubscription, RpcError>> {
        let _ = (filter, cx);
        Box::pin(async {
            tracing::error!(
                extension = self.id(),
                "`filter_members` without `subscribe`"
            );
            let why = "this extension does not support subscriptions";
            Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why))
        })
    }

    /// Returns work that goes on beside requests, such as to run calls that outlive their request. None by default.
    ///
    /// The server spawns it once, when it begins to serve inside of a tokio runtime, at the latest at its first
    /// request. It is dropped when the last clone of the server and everything that serves it is dropped, and after
    /// [`Server::shut_down`], when the grace period is over; [`WeakServer::shutting_down`] tells when to stop.
    ///
    /// Let this future own running [`ToolCall`]s, and not the extension: a running call refers to the server, and the
    /// server to the extension, so that neither would be dropped.
    fn background(&self, server: WeakServer) -> Option<BoxFuture<'static, ()>> {
        let _ = server;
        None
    }
}

/// A shared extension, for an application that uses it beside its server.
impl<E: ServerExtension + ?Sized> ServerExtension for Arc<E> {
    fn id(&self) -> &str {
        (**self).id()
    }

    fn settings(&self) -> Json {
        (**self).settings()
    }

    fn is_available_in(&self, dialect: &Dialect) -> bool {
        (**self).is_available_in(dialect)
    }

    fn is_declared_by_legacy(&self, request: &Request) -> bool {
        (**self).is_declared_by_legacy(request)
    }

    fn undeclared_error(&self, dialect: &Dialect) -> Option<RpcError> {
        (**self).undeclared_error(dialect)
    }

    fn adjust_capabilities(&self, cx: &Context, capabilities: &mut ServerCapabilities) {
        (**self).adjust_capabilities(cx, capabilities);
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        (**self).methods()
    }

    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        (**self).respond(request, cx)
    }

    fn call_tool<'a>(&'a self, call: ToolCall, cx: Context) -> BoxFuture<'a, Outcome> {
        (**self).call_tool(call, cx)
    }

    fn filter_members(&self) -> &[&str] {
        (**self).filter_members()
    }

    fn subscribe<'a>(
        &'a self,
        filter: BTreeMap<String, Json>,
        cx: Context,
    ) -> BoxFuture<'a, Result<ExtensionSubscription, RpcError>> {
        (**self).subscribe(filter, cx)
    }

    fn background(&self, server: WeakServer) -> Option<BoxFuture<'static, ()>> {
        (**self).background(server)
    }
}

/// A method of a [`ServerExtension`].
///
/// # Examples
///
/// ```
/// use bowline::server::ExtensionMethod;
///
/// let method = ExtensionMethod::new("drawings/get").name_member("drawingId");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a method does nothing until `ServerExtension::methods` returns it"]
pub struct ExtensionMethod {
    name: String,
    name_member: Option<String>,
    eras: MethodEras,
}

/// The eras in which a method of an extension exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MethodEras {
    All,
    Modern,
    Legacy,
}

impl ExtensionMethod {
    /// Creates a method with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            name_member: None,
            eras: MethodEras::All,
        }
    }

    /// Restricts the method to callers of the modern era. Others get `-32601`.
    pub fn modern_only(mut self) -> Self {
        self.eras = MethodEras::Modern;
        self
    }

    /// Restricts the method to callers of legacy versions. Others get `-32601`.
    pub fn legacy_only(mut self) -> Self {
        self.eras = MethodEras::Legacy;
        self
    }

    pub(super) fn exists_in(&self, dialect: &Dialect) -> bool {
        match self.eras {
            MethodEras::All => true,
            MethodEras::Modern => dialect.is_modern(),
            MethodEras::Legacy => !dialect.is_modern(),
        }
    }

    /// Sets the member of the params that the HTTP header `Mcp-Name` mirrors, so that proxies can route by it. Over
    /// HTTP, a request whose header is missing or differs is refused with `-32020`.
    pub fn name_member(mut self, member: impl Into<String>) -> Self {
        self.name_member = Some(member.into());
        self
    }

    /// Returns the name of the method.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member of the params that `Mcp-Name` mirrors.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only HTTP has headers")
    )]
    pub(super) fn mirrored_member(&self) -> Option<&str> {
        self.name_member.as_deref()
    }
}

/// The settings of a tool for an extension, such as how its calls become tasks; set with
/// [`Tool::with_settings`](super::Tool::with_settings).
///
/// # Examples
///
/// ```
/// use bowline::Tool;
/// use bowline::server::ToolSettings;
///
/// struct Paint {
///     layers: u32,
/// }
///
/// impl ToolSettings for Paint {
///     const EXTENSION: &'static str = "com.example/drawing";
/// }
///
/// let tool = Tool::new("fence", async || "painted").with_settings(Paint { layers: 2 });
/// assert_eq!(tool.settings::<Paint>().map(|paint| paint.layers), Some(2));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the settings of an extension",
    label = "does not implement `ToolSettings`",
    note = "pass the value that the extension documents, or implement `bowline::server::ToolSettings`"
)]
pub trait ToolSettings: Send + Sync + 'static {
    /// The identifier of the extension. [`Server::check`] fails if the server does not have it.
    const EXTENSION: &'static str;

    /// Changes the definition of the tool that clients get, such as its `_meta`. By default it stays the same.
    fn describe(&self, definition: &mut bowline_types::Tool) {
        let _ = definition;
    }

    /// Returns whether the tool can be called only by callers that declare the extension, as with
    /// [`Tool::requires_extension`](super::Tool::requires_extension). `false` by default.
    fn requires_extension(&self) -> bool {
        false
    }
}

impl Server {
    /// Adds a protocol extension.
    ///
    /// [`check`](Self::check) returns an error if its identifier is invalid or exists already, its settings are not an
    /// object, or one of its methods or filter members is defined by the protocol or by another extension. An
    /// extension belongs to the server that answers the requests: a server that has one cannot be
    /// [mounted](Self::mount).
    ///
    /// # Examples
    ///
    /// See [`ServerExtension`].
    pub fn extension(self, extension: impl ServerExtension) -> Self {
        // Before the definition is locked, because this is foreign code.
        let extension = Arc::new(RegisteredExtension::new(Arc::new(extension)));
        self.with_definition(|definition| definition.extensions.push(extension))
    }
}

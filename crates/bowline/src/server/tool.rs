//! [`Tool`]: a function that a model may call, with its definition, checks and limits.

mod argument_names;

mod call_refusal;
pub(super) use call_refusal::CallRefusal;

mod required_capabilities;
pub use required_capabilities::RequiredCapability;
pub(super) use required_capabilities::check_declared;

#[cfg(feature = "validate")]
mod validation;
#[cfg(feature = "validate")]
use validation::SchemaValidators;

#[cfg(not(feature = "validate"))]
mod validation_disabled;
#[cfg(not(feature = "validate"))]
use validation_disabled::SchemaValidators;

mod handler;
pub use handler::ToolHandler;
use handler::{AsyncHandler, JsonHandler, SyncHandler};

use std::future::Future;
use std::sync::Arc;

use bowline_core::era::{Dialect, StructuredContent, Tasks};
use bowline_core::http::headers::ParamHeaders;
use bowline_core::shortened;
use bowline_types::{
    CallToolResult, ClientCapabilities, ErrorCode, Icon, Json, Meta, RpcError, ToolAnnotations,
    check_extension_id, check_meta_key,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::extension::ToolSettings;
use super::extract::{HandlerInput, HandlerRequirements, Parameters, RequiredState};
use super::function::IntoDefinition;
use super::handler::{BlockingHandler, Handler};
use super::lint;
use super::output::{self, IntoToolResult};
use super::tool_error::ToolError;
use super::visibility::{Visibility, Visible};
use super::{Server, schema};
use crate::exchange::{CancelMode, Context, Extensions};
use crate::layer::Layer;
use crate::{Error, Result};

/// A tool and the handler behind it.
///
/// # Examples
///
/// ```
/// use bowline::{Context, Tool};
///
/// async fn who(cx: Context) -> String {
///     let caller = cx.caller().implementation.as_ref();
///     caller.map_or_else(|| "unknown".into(), |caller| caller.name.clone())
/// }
///
/// let tool = Tool::new("who", who).description("Returns the name of the client.").read_only(true);
/// ```
#[derive(Clone)]
#[must_use = "a tool does nothing until it is added with `Server::tool`"]
pub struct Tool {
    definition: bowline_types::Tool,
    handler: Arc<dyn ToolHandler>,
    cancel_mode: CancelMode,
    states: Vec<RequiredState>,
    required_capabilities: Vec<RequiredCapability>,
    /// Identifiers of the extensions that a caller must declare.
    extensions: Vec<String>,
    /// Settings for extensions, by type.
    settings: Extensions,
    /// Identifiers of the extensions that `settings` belong to.
    settings_extensions: Vec<&'static str>,
    scopes: Vec<String>,
    semaphore: Option<Arc<Semaphore>>,
    is_blocking: bool,
    visibility: Visibility,
    layers: Vec<Arc<dyn Layer>>,
    definition_error: Option<String>,
    /// Whether the input schema was derived, so that `null` stands for an omitted argument.
    accepts_null: bool,
    denies_unknown: bool,
    /// Set when the tool is registered.
    compiled: Option<Arc<CompiledSchemas>>,
}

/// The compiled schemas of a tool.
struct CompiledSchemas {
    validators: SchemaValidators,
    /// Whether the output schema allows values that are not objects.
    allows_non_objects: bool,
    /// The arguments with `x-mcp-header`, if there are any.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only HTTP has headers")
    )]
    param_headers: Option<Arc<ParamHeaders>>,
}

impl Tool {
    /// Creates a tool from an `async fn` that takes up to eight extractors ([`Extract`](super::Extract)) and returns
    /// a type that implements [`IntoToolResult`].
    ///
    /// `inputSchema` is derived from its [`Args`](super::Args), `outputSchema` from its return type. The future is
    /// dropped when the request is cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::schemars::{self, JsonSchema};
    /// use bowline::{Args, Tool};
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Numbers {
    ///     a: i64,
    ///     b: i64,
    /// }
    ///
    /// async fn add(Args(numbers): Args<Numbers>) -> i64 {
    ///     numbers.a + numbers.b
    /// }
    ///
    /// let tool = Tool::new("add", add).read_only(true).idempotent(true);
    /// assert!(tool.check().is_ok());
    /// ```
    ///
    /// A closure that captures clones into its future:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use bowline::Tool;
    ///
    /// let counter = Arc::new(AtomicU64::new(0));
    /// let tool = Tool::new("count", move || {
    ///     let counter = counter.clone();
    ///     async move { counter.fetch_add(1, Ordering::Relaxed) + 1 }
    /// });
    /// ```
    pub fn new<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoToolResult, Future: Send>,
        E: Parameters,
    {
        Self::from_handler::<H::Output, E>(name.into(), AsyncHandler::new(handler))
    }

    /// Creates a tool from a synchronous function, which runs on tokio's blocking pool.
    ///
    /// A running function cannot be dropped. When its request is cancelled, [`Context::is_cancelled`] becomes true
    /// and the result of the function is discarded, whatever the [`cancel_mode`](Self::cancel_mode); a function that
    /// has not started yet never starts. [`Limits::blocking`](crate::Limits::blocking) limits how many run on a server.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Args, Tool};
    ///
    /// fn fibonacci(Args(n): Args<Number>) -> u64 {
    ///     (0..n.n).fold((0, 1), |(a, b), _| (b, a + b)).0
    /// }
    /// # #[derive(serde::Deserialize, bowline::schemars::JsonSchema)]
    /// # struct Number { n: u32 }
    ///
    /// let tool = Tool::blocking("fibonacci", fibonacci);
    ///
    /// let path = std::path::PathBuf::from("/etc/motd");
    /// let tool = Tool::blocking("motd", move || std::fs::read_to_string(&path));
    /// ```
    pub fn blocking<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: BlockingHandler<E, Output: IntoToolResult>,
        E: Parameters,
    {
        let mut tool = Self::from_handler::<H::Output, E>(name.into(), SyncHandler::new(handler));
        tool.is_blocking = true;
        tool
    }

    /// Creates a tool from a JSON Schema and a function that takes the arguments as JSON.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error. The error type is fixed, so that the
    /// compiler knows it in a closure that ends with `Ok(…)`: return another error as `Err(error.into())`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::{CallToolResult, Tool};
    /// use serde_json::json;
    ///
    /// let names = Arc::new(vec!["Ada".to_owned(), "Grace".to_owned()]);
    /// let name = Tool::raw("name", json!({"type": "object"}), move |arguments, _cx| {
    ///     let names = names.clone();
    ///     async move {
    ///         let arguments: serde_json::Value = arguments.decode()?;
    ///         let nth: usize = arguments["nth"].as_str().ok_or("`nth` is missing")?.parse()?;
    ///         let name = names.get(nth).ok_or("there is no such name")?;
    ///         Ok(CallToolResult::text(name))
    ///     }
    /// })
    /// .description("Returns a name.");
    /// ```
    pub fn raw<H, F>(name: impl Into<String>, schema: impl Into<Json>, handler: H) -> Self
    where
        H: Fn(Json, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<CallToolResult, ToolError>> + Send + 'static,
    {
        let definition = bowline_types::Tool::new(name, schema);
        Self::from_parts(definition, JsonHandler(handler))
    }

    /// Returns the tool that a function with `#[tool]` defines.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "macros")] {
    /// use bowline::prelude::*;
    ///
    /// #[tool]
    /// async fn now() -> &'static str {
    ///     "noon"
    /// }
    ///
    /// let server = Server::new("clock", "1.0.0").tool(Tool::of(now).title("Time"));
    /// # }
    /// ```
    pub fn of<M>(function: impl IntoDefinition<Self, M>) -> Self {
        function.into_definition()
    }

    /// Creates a tool from its definition and a [`ToolHandler`].
    pub fn from_parts(definition: bowline_types::Tool, handler: impl ToolHandler) -> Self {
        Self {
            definition,
            handler: Arc::new(handler),
            cancel_mode: CancelMode::default(),
            states: Vec::new(),
            required_capabilities: Vec::new(),
            extensions: Vec::new(),
            settings: Extensions::default(),
            settings_extensions: Vec::new(),
            scopes: Vec::new(),
            semaphore: None,
            is_blocking: false,
            visibility: Visibility::default(),
            layers: Vec::new(),
            definition_error: None,
            accepts_null: false,
            denies_unknown: false,
            compiled: None,
        }
    }

    fn from_handler<R: IntoToolResult, E: Parameters>(
        name: String,
        handler: impl ToolHandler,
    ) -> Self {
        let requirements = HandlerRequirements::of::<E>();
        let input = requirements.input_schema().cloned();
        let definition = bowline_types::Tool::new(name, input.unwrap_or_else(schema::empty_object));
        let mut tool = Self::from_parts(definition, handler);
        tool.states = requirements.states().to_vec();
        tool.accepts_null = true;
        if requirements.has_duplicate_args() {
            tool.definition_error = Some("the handler takes `Args` twice".to_owned());
        }
        tool.definition.output_schema = R::output_schema();
        tool
    }

    /// Sets the title that user interfaces show.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Sets the description of the tool for the model.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Sets `readOnlyHint`: whether the tool leaves its environment unchanged.
    pub fn read_only(self, value: bool) -> Self {
        self.with_annotations(|annotations| annotations.read_only_hint = Some(value))
    }

    /// Sets `destructiveHint`: whether the tool may make destructive changes.
    pub fn destructive(self, value: bool) -> Self {
        self.with_annotations(|annotations| annotations.destructive_hint = Some(value))
    }

    /// Sets `idempotentHint`: whether repeating a call with the same arguments has no further effect.
    pub fn idempotent(self, value: bool) -> Self {
        self.with_annotations(|annotations| annotations.idempotent_hint = Some(value))
    }

    /// Sets `openWorldHint`: whether the tool interacts with external entities, such as the web.
    pub fn open_world(self, value: bool) -> Self {
        self.with_annotations(|annotations| annotations.open_world_hint = Some(value))
    }

    /// Adds an icon that user interfaces may show.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.definition.icons.get_or_insert_default().push(icon);
        self
    }

    /// Sets `_meta` of the definition.
    pub fn meta(mut self, meta: Meta) -> Self {
        self.definition.meta = Some(meta);
        self
    }

    /// Sets `inputSchema`, in place of the derived one.
    pub fn input_schema(mut self, schema: impl Into<Json>) -> Self {
        self.definition.input_schema = schema.into();
        self.accepts_null = false;
        if self.denies_unknown {
            return self.deny_unknown();
        }
        self
    }

    /// Refuses calls with unknown arguments, which are ignored otherwise. The model gets an error with the name of the
    /// unknown argument and of the known one that is nearest to it.
    ///
    /// Adds `"additionalProperties": false` to `inputSchema`, or `unevaluatedProperties` if the schema has choices at
    /// its root, unless it has that keyword already. Objects inside of arguments are not affected; they refuse unknown
    /// members with `#[serde(deny_unknown_fields)]`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::{Args, Client, Server, Tool};
    /// # use serde_json::json;
    /// # #[derive(serde::Deserialize, bowline::schemars::JsonSchema)]
    /// # struct Search { query: String, limit: Option<u32> }
    /// # async fn search(Args(search): Args<Search>) -> String { search.query }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// let search = Tool::new("search", search).deny_unknown();
    /// let client = Client::in_process(&Server::new("library", "1.0.0").tool(search)).await?;
    ///
    /// let reply = client.call_tool("search", json!({"query": "knots", "limt": 3})).await?;
    ///
    /// assert!(reply.is_error());
    /// assert!(reply.text().contains("unknown argument `limt`; did you mean `limit`?"));
    /// # Ok(()) }
    /// ```
    pub fn deny_unknown(mut self) -> Self {
        self.denies_unknown = true;
        self.definition.input_schema = schema::closed(&self.definition.input_schema);
        self
    }

    /// Sets `outputSchema`, in place of the derived one.
    pub fn output_schema(mut self, schema: impl Into<Json>) -> Self {
        self.definition.output_schema = Some(schema.into());
        self
    }

    /// Sets whether a cancelled handler is dropped or signalled. Defaults to [`CancelMode::Drop`].
    pub fn cancel_mode(mut self, mode: CancelMode) -> Self {
        self.cancel_mode = mode;
        self
    }

    /// Adds a layer around every call of this tool, inside the existing ones.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Limits the number of concurrent calls of this tool. Further calls get an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Tool;
    ///
    /// let print = Tool::new("print", async || "printed").max_concurrency(1);
    /// ```
    pub fn max_concurrency(mut self, limit: usize) -> Self {
        self.semaphore = Some(Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))));
        self
    }

    /// Requires a client capability that the handler uses. Callers that do not declare it get `-32021` before the
    /// handler runs.
    pub fn requires_capability(mut self, capability: RequiredCapability) -> Self {
        self.required_capabilities.push(capability);
        self
    }

    /// Requires the caller to declare a protocol extension. Other callers get `-32021` with the missing extension,
    /// before the handler runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Tool;
    /// # async fn draw() {}
    /// let tool = Tool::new("draw", draw).requires_extension("com.example/drawing");
    /// ```
    pub fn requires_extension(mut self, id: impl Into<String>) -> Self {
        self.extensions.push(id.into());
        self
    }

    /// Sets the settings for an extension, replacing earlier ones of the same type. See [`ToolSettings`].
    pub fn with_settings<T: ToolSettings>(mut self, settings: T) -> Self {
        settings.describe(&mut self.definition);
        if settings.requires_extension() {
            self.extensions.push(T::EXTENSION.to_owned());
        }
        self.settings.insert(settings);
        self.settings_extensions.push(T::EXTENSION);
        self
    }

    /// Requires OAuth scopes of the caller's [principal](crate::exchange::Principal). A call without them is refused
    /// before the handler runs, over HTTP with status 403 and the required scopes in the challenge.
    ///
    /// The tool stays in `tools/list` for every caller, so that clients can request the scopes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Tool;
    /// # async fn delete() {}
    /// let tool = Tool::new("delete", delete).scopes(["files:read", "files:write"]);
    /// ```
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Hides the tool from callers for which `filter` returns false, both in `tools/list` and in `tools/call`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Tool;
    /// # async fn wipe() {}
    /// let admins = vec!["ada".to_owned()];
    /// let tool = Tool::new("wipe", wipe).visible_to(move |cx| {
    ///     let name = cx.principal().name();
    ///     name.is_some_and(|name| admins.iter().any(|admin| admin == name))
    /// });
    /// ```
    pub fn visible_to(mut self, filter: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        self.visibility = Visibility::filtered(filter);
        self
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Returns how a cancelled handler is stopped; set with [`cancel_mode`](Self::cancel_mode).
    #[must_use]
    pub fn handler_cancel_mode(&self) -> CancelMode {
        self.cancel_mode
    }

    /// Returns the settings of type `T`; set with [`with_settings`](Self::with_settings).
    #[must_use]
    pub fn settings<T: ToolSettings>(&self) -> Option<&T> {
        self.settings.get()
    }

    /// Returns the definition of the tool.
    #[must_use]
    pub fn definition(&self) -> &bowline_types::Tool {
        &self.definition
    }

    /// Validates the definition. [`Server::check`](super::Server::check) reports the same errors.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the name is empty, the handler takes `Args` twice, or a scope, an extension identifier, a
    /// `_meta` key or a schema is invalid. A schema must be valid JSON Schema 2020-12 without references to other
    /// documents; the input schema must have the type `object`, and its `x-mcp-header` annotations must follow the
    /// rules of the specification.
    pub fn check(&self) -> Result<()> {
        self.compile().map(drop).map_err(|why| self.misuse(&why))
    }

    /// Compiles the schemas; required before a call.
    pub(super) fn registered(mut self) -> Result<Self> {
        let compiled = self.compile().map_err(|why| self.misuse(&why))?;
        self.compiled = Some(Arc::new(compiled));
        if tracing::enabled!(tracing::Level::DEBUG) {
            for lint in lint::lint(self.name(), &self) {
                tracing::debug!(%lint, "a model API may refuse a tool");
            }
        }
        Ok(self)
    }

    /// Returns the arguments with `x-mcp-header`, if there are any.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only HTTP has headers")
    )]
    pub(super) fn param_headers(&self) -> Option<Arc<ParamHeaders>> {
        self.compiled.as_ref()?.param_headers.clone()
    }

    pub(super) fn states(&self) -> &[RequiredState] {
        &self.states
    }

    pub(super) fn layers(&self) -> &[Arc<dyn Layer>] {
        &self.layers
    }

    pub(super) fn required_scopes(&self) -> &[String] {
        &self.scopes
    }

    pub(super) fn required_extensions(&self) -> &[String] {
        &self.extensions
    }

    /// Returns the identifiers of the extensions that the tool has settings for.
    pub(super) fn settings_extensions(&self) -> &[&'static str] {
        &self.settings_extensions
    }

    /// Returns whether the handler runs on the blocking pool.
    pub(super) fn is_blocking(&self) -> bool {
        self.is_blocking
    }

    /// Validates the call, runs the handler and validates its output.
    pub(super) async fn call(&self, input: HandlerInput) -> Result<CallToolResult, RpcError> {
        let declared = &input.context().caller().capabilities;
        match self.check_call(input.arguments(), declared) {
            Ok(()) => self.call_checked(input).await,
            Err(refusal) => refusal.into_result(),
        }
    }

    /// Checks the capabilities of the caller and the arguments.
    pub(super) fn check_call(
        &self,
        arguments: &Json,
        declared: &ClientCapabilities,
    ) -> Result<(), CallRefusal> {
        required_capabilities::check(&self.required_capabilities, &self.extensions, declared)?;
        match &self.compiled {
            Some(compiled) => {
                let validated = compiled.validators.arguments(arguments);
                validated.map_err(CallRefusal::Arguments)
            }
            None => Ok(()),
        }
    }

    /// Runs the handler of a checked call and validates its output.
    pub(super) async fn call_checked(
        &self,
        mut input: HandlerInput,
    ) -> Result<CallToolResult, RpcError> {
        if let Some(semaphore) = &self.semaphore {
            let permit = semaphore.clone().try_acquire_owned();
            input.hold_permit(permit.map_err(|_| overloaded())?);
        }
        // Also held here, because only blocking handlers hold the permits themselves.
        let _permits = input.permits();
        let form = input.context().caller().dialect.structured_content;
        let mut result = self.handler.call(input).await?;
        if result.is_error != Some(true) {
            self.check_output(&result)?;
        }
        if form == StructuredContent::Object && self.must_wrap(&result) {
            output::wrap(&mut result)?;
        }
        Ok(result)
    }

    /// Returns whether the structured content must be wrapped for a revision that allows only objects.
    fn must_wrap(&self, result: &CallToolResult) -> bool {
        let Some(output) = &result.structured_content else {
            return false;
        };
        let by_schema = self
            .compiled
            .as_ref()
            .is_some_and(|compiled| compiled.allows_non_objects);
        // The output schema does not apply to errors.
        (by_schema && result.is_error != Some(true)) || !output.is_object()
    }

    /// Returns the definition for the era of `dialect`, with this name. Members that a legacy revision does not have
    /// are removed later.
    pub(super) fn definition_for(&self, name: &str, dialect: &Dialect) -> bowline_types::Tool {
        let mut definition = self.definition.clone();
        name.clone_into(&mut definition.name);
        if dialect.structured_content != StructuredContent::Any {
            definition.output_schema = definition
                .output_schema
                .as_ref()
                .map(schema::to_object_schema);
        }
        if dialect.tasks == Tasks::Extension {
            definition.execution = None;
        }
        definition
    }

    fn check_output(&self, result: &CallToolResult) -> Result<(), RpcError> {
        if self.definition.output_schema.is_none() {
            return Ok(());
        }
        let error = match (&result.structured_content, &self.compiled) {
            (None, _) => "`structuredContent` is missing".to_owned(),
            (Some(output), Some(compiled)) => match compiled.validators.output(output) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            (Some(_), None) => return Ok(()),
        };
        tracing::error!(
            tool = self.name(),
            error,
            "tool output does not match its output schema"
        );
        Err(RpcError::new(
            ErrorCode::INTERNAL_ERROR,
            "tool output does not match its output schema",
        ))
    }

    fn compile(&self) -> Result<CompiledSchemas, String> {
        if let Some(error) = &self.definition_error {
            return Err(error.clone());
        }
        if self.definition.name.is_empty() {
            return Err("the name is empty".to_owned());
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(format!(
                "invalid scope {scope:?}: expected ASCII without spaces, `\"` and `\\`"
            ));
        }
        for id in &self.extensions {
            check_extension_id(id).map_err(|error| format!("extension `{id}`: {error}"))?;
        }
        for (key, _) in self.definition.meta.iter().flat_map(Meta::iter) {
            check_meta_key(key).map_err(|error| format!("`_meta` key `{key}`: {error}"))?;
        }
        let input = &self.definition.input_schema;
        let output = self.definition.output_schema.as_ref();
        require_object_schema(input)?;
        if output.is_some_and(|output| !output.is_object()) {
            return Err("the output schema must be a JSON object".to_owned());
        }
        let param_headers = ParamHeaders::read(input).map_err(|error| error.to_string())?;
        let validated = match self.accepts_null {
            true => &schema::accepting_null(input),
            false => input,
        };
        Ok(CompiledSchemas {
            validators: SchemaValidators::compile(validated, output)?,
            allows_non_objects: output.is_some_and(schema::needs_wrapping),
            param_headers: (!param_headers.is_empty()).then(|| Arc::new(param_headers)),
        })
    }

    fn misuse(&self, why: &str) -> Error {
        Error::misuse(format!("invalid tool `{}`: {why}", self.name()))
    }

    fn with_annotations(mut self, change: impl FnOnce(&mut ToolAnnotations)) -> Self {
        change(self.definition.annotations.get_or_insert_default());
        self
    }
}

/// A collection of tools, and of prompts, resources and completers beside them, such as a type with `#[tools]` on its
/// `impl` block.
///
/// # Examples
///
/// ```
/// use bowline::{Server, Tool, Toolbox};
///
/// struct Clock;
///
/// impl Toolbox for Clock {
///     fn into_tools(self) -> Vec<Tool> {
///         vec![Tool::new("now", async || "noon"), Tool::new("zone", async || "UTC")]
///     }
/// }
///
/// let server = Server::new("clock", "1.0.0").toolbox(Clock);
/// assert_eq!(server.tools().names(), ["now", "zone"]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Toolbox`",
    label = "not a collection of tools",
    note = "put `#[tools]` on its `impl` block, and `#[tool]` on the methods"
)]
pub trait Toolbox: Sized {
    /// Returns the tools, which share `self`.
    fn into_tools(self) -> Vec<Tool>;

    /// Adds everything that it has to a server. By default these are its tools.
    fn add_to(self, server: Server) -> Server {
        self.into_tools().into_iter().fold(server, Server::tool)
    }
}

impl<T: Into<Tool>> Toolbox for Vec<T> {
    fn into_tools(self) -> Vec<Tool> {
        self.into_iter().map(Into::into).collect()
    }
}

impl Visible for Tool {
    fn visibility(&self) -> &Visibility {
        &self.visibility
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

fn require_object_schema(schema: &Json) -> Result<(), String> {
    let object: Option<Value> = schema.decode().ok();
    let is_object = object
        .as_ref()
        .and_then(|schema| schema.get("type"))
        .is_some_and(|kind| kind == "object");
    if is_object {
        return Ok(());
    }
    Err("the `type` of the input schema must be `object`".to_owned())
}

/// Returns whether this is an OAuth `scope-token`, which a challenge header quotes and separates by spaces.
fn is_scope(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    !text.is_empty() && text.bytes().all(is_fine)
}

/// Returns a result with `isError`, so that the model can correct its arguments.
fn invalid_arguments(why: &str) -> CallToolResult {
    CallToolResult::error(format!("invalid arguments:\n{why}"))
}

fn overloaded() -> RpcError {
    RpcError::new(
        ErrorCode::INTERNAL_ERROR,
        "overloaded: too many concurrent calls of this tool",
    )
}

/// Converts a decoding error of params or arguments into `-32602`.
#[must_use]
#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that `map_err` requires"
)]
pub fn invalid_params(error: serde_json::Error) -> RpcError {
    RpcError::new(
        ErrorCode::INVALID_PARAMS,
        format!("invalid params: {}", shortened(error)),
    )
}

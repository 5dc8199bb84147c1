//! Tools: functions that a model may call.

mod asks;
pub use asks::Askable;

#[cfg(feature = "validate")]
mod checks;
#[cfg(feature = "validate")]
use checks::Checks;

#[cfg(not(feature = "validate"))]
mod checks_off;
#[cfg(not(feature = "validate"))]
use checks_off::Checks;

mod function;
pub use function::ToolHandler;
use function::{Blocking, Typed, Untyped};

use std::future::Future;
use std::sync::Arc;

use bowline_core::era::{Dialect, StructuredContent, Tasks};
use bowline_core::http::headers::ParamHeaders;
use bowline_core::shortened;
use bowline_types::{
    CallToolResult, ErrorCode, Icon, Json, Meta, RpcError, ToolAnnotations, check_extension_id,
    check_meta_key,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::extract::{Given, NeededState, Needs, Parameters};
use super::handler::{BlockingHandler, Handler};
use super::output::{self, IntoToolResult};
use super::schema;
use crate::exchange::{CancelMode, Context};
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
///     caller.map_or_else(|| "a stranger".into(), |caller| caller.name.clone())
/// }
///
/// let tool = Tool::new("who", who).description("Says who is asking.").read_only(true);
/// ```
#[derive(Clone)]
#[must_use = "a tool is offered by `Server::tool`"]
pub struct Tool {
    definition: bowline_types::Tool,
    handler: Arc<dyn ToolHandler>,
    cancel_mode: CancelMode,
    states: Vec<NeededState>,
    asks: Vec<Askable>,
    /// What a caller must know.
    extensions: Vec<String>,
    scopes: Vec<String>,
    at_once: Option<Arc<Semaphore>>,
    is_blocking: bool,
    visible_to: Option<Audience>,
    layers: Vec<Arc<dyn Layer>>,
    flaw: Option<String>,
    /// What is known of the schemas once the tool is registered.
    compiled: Option<Arc<Compiled>>,
}

/// What the schemas of a tool come to.
struct Compiled {
    checks: Checks,
    /// Whether its output may be something else than an object.
    wraps: bool,
    /// Which arguments are mirrored in headers, if any are.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only HTTP has headers")
    )]
    param_headers: Option<Arc<ParamHeaders>>,
}

/// Who sees a tool.
#[derive(Clone)]
struct Audience(Arc<dyn Fn(&Context) -> bool + Send + Sync>);

impl Tool {
    /// A tool whose handler is an `async fn` of up to eight extractors, each an [`Extract`](super::Extract), that returns
    /// something that is [`IntoToolResult`].
    ///
    /// The schema of the arguments is that of its [`Args`](super::Args), the schema of the output that of
    /// what it returns. The future is dropped when the caller gives up.
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
    pub fn new<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoToolResult, Future: Send>,
        E: Parameters,
    {
        Self::of::<H::Output, E>(name.into(), Typed::new(handler))
    }

    /// A tool whose handler is a synchronous function. It runs on a thread where it holds up nobody.
    ///
    /// A function cannot be dropped half-way. When its caller gives up it is told by
    /// [`Context::is_cancelled`] and runs on, unheard, whatever the [`cancel_mode`](Self::cancel_mode);
    /// if it had not started yet, it never does. All functions of a server share its places for them; see
    /// [`Limits::blocking`](crate::Limits::blocking).
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
    /// ```
    pub fn blocking<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: BlockingHandler<E, Output: IntoToolResult>,
        E: Parameters,
    {
        let mut tool = Self::of::<H::Output, E>(name.into(), Blocking::new(handler));
        tool.is_blocking = true;
        tool
    }

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
        let definition = bowline_types::Tool::new(name, schema);
        Self::from_parts(definition, Untyped(handler))
    }

    /// A tool from its definition and what runs it.
    pub fn from_parts(definition: bowline_types::Tool, handler: impl ToolHandler) -> Self {
        Self {
            definition,
            handler: Arc::new(handler),
            cancel_mode: CancelMode::default(),
            states: Vec::new(),
            asks: Vec::new(),
            extensions: Vec::new(),
            scopes: Vec::new(),
            at_once: None,
            is_blocking: false,
            visible_to: None,
            layers: Vec::new(),
            flaw: None,
            compiled: None,
        }
    }

    fn of<R: IntoToolResult, E: Parameters>(name: String, handler: impl ToolHandler) -> Self {
        let needs = Needs::of::<E>();
        let input = needs.input_schema().cloned();
        let definition = bowline_types::Tool::new(name, input.unwrap_or_else(schema::of_nothing));
        let mut tool = Self::from_parts(definition, handler);
        tool.states = needs.states().to_vec();
        if needs.has_arguments_twice() {
            tool.flaw = Some("its handler takes `Args` twice".to_owned());
        }
        tool.definition.output_schema = R::output_schema();
        tool
    }

    /// Names the tool for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Says what the tool does, for the model.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Says whether it changes nothing.
    pub fn read_only(self, yes: bool) -> Self {
        self.annotated(|annotations| annotations.read_only_hint = Some(yes))
    }

    /// Says whether it may destroy something.
    pub fn destructive(self, yes: bool) -> Self {
        self.annotated(|annotations| annotations.destructive_hint = Some(yes))
    }

    /// Says whether doing it twice is like doing it once.
    pub fn idempotent(self, yes: bool) -> Self {
        self.annotated(|annotations| annotations.idempotent_hint = Some(yes))
    }

    /// Says whether it reaches beyond its own domain, such as into the web.
    pub fn open_world(self, yes: bool) -> Self {
        self.annotated(|annotations| annotations.open_world_hint = Some(yes))
    }

    /// Adds a picture that stands for it.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.definition.icons.get_or_insert_default().push(icon);
        self
    }

    /// Sets what accompanies its definition.
    pub fn meta(mut self, meta: Meta) -> Self {
        self.definition.meta = Some(meta);
        self
    }

    /// Describes the arguments in words of your own instead of those of a type.
    pub fn input_schema(mut self, schema: impl Into<Json>) -> Self {
        self.definition.input_schema = schema.into();
        self
    }

    /// Describes the structured output in words of your own instead of those of a type.
    pub fn output_schema(mut self, schema: impl Into<Json>) -> Self {
        self.definition.output_schema = Some(schema.into());
        self
    }

    /// Decides what becomes of the handler when its caller gives up.
    pub fn cancel_mode(mut self, mode: CancelMode) -> Self {
        self.cancel_mode = mode;
        self
    }

    /// Stands a layer around every call of this tool, inside those that are there already.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Runs at most this many calls at once and refuses what is beyond.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Tool;
    ///
    /// let print = Tool::new("print", async || "printed").at_once(1);
    /// ```
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = Some(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        self
    }

    /// Declares what the handler may ask its caller for. A caller who cannot be asked is refused before
    /// the handler runs.
    pub fn asks(mut self, what: Askable) -> Self {
        self.asks.push(what);
        self
    }

    /// Requires the caller to declare a protocol extension. Other callers get `-32021` with the missing extension, before the handler
    /// runs.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Tool;
    /// # async fn draw() {}
    /// let tool = Tool::new("draw", draw).extension("com.example/drawing");
    /// ```
    pub fn extension(mut self, id: impl Into<String>) -> Self {
        self.extensions.push(id.into());
        self
    }

    /// Declares what a [principal](crate::exchange::Principal) must be allowed for the tool to be called on
    /// their behalf. Whoever lacks some of it is refused before the handler runs and, over HTTP, told what to
    /// ask for.
    ///
    /// The tool is on the list all the same: whoever sees it there can get what it needs.
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

    /// Shows the tool only to some. For all others it does not exist, neither in the list nor when called.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Tool;
    /// # struct Admin;
    /// # async fn wipe() {}
    /// let tool = Tool::new("wipe", wipe).visible_to(|cx| cx.extensions().find::<Admin>().is_some());
    /// ```
    pub fn visible_to(mut self, who: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        self.visible_to = Some(Audience(Arc::new(who)));
        self
    }

    /// The name under which it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// What clients see of it.
    #[must_use]
    pub fn definition(&self) -> &bowline_types::Tool {
        &self.definition
    }

    /// Checks that the tool can be offered. [`Server::tool`](super::Server::tool) does so too, and serving
    /// fails if one of the tools cannot.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the name is empty, the handler takes arguments twice, a scope, an extension identifier or a key of `_meta` is
    /// invalid, or a schema is: it must be valid JSON Schema 2020-12 without references to other documents, that of the
    /// arguments must have the type `object`, and `x-mcp-header` must follow the rules of the specification.
    pub fn check(&self) -> Result<()> {
        self.compile().map(drop).map_err(|why| self.misuse(&why))
    }

    /// The tool, ready to be called.
    pub(super) fn registered(mut self) -> Result<Self> {
        let compiled = self.compile().map_err(|why| self.misuse(&why))?;
        self.compiled = Some(Arc::new(compiled));
        Ok(self)
    }

    /// Which arguments are mirrored in headers, if any are.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "only HTTP has headers")
    )]
    pub(super) fn param_headers(&self) -> Option<Arc<ParamHeaders>> {
        self.compiled.as_ref()?.param_headers.clone()
    }

    pub(super) fn states(&self) -> &[NeededState] {
        &self.states
    }

    pub(super) fn layers(&self) -> &[Arc<dyn Layer>] {
        &self.layers
    }

    pub(super) fn scopes_needed(&self) -> &[String] {
        &self.scopes
    }

    pub(super) fn mode(&self) -> CancelMode {
        self.cancel_mode
    }

    /// Whether it needs a thread of its own while it runs.
    pub(super) fn is_blocking(&self) -> bool {
        self.is_blocking
    }

    pub(super) fn is_for_everybody(&self) -> bool {
        self.visible_to.is_none()
    }

    pub(super) fn is_visible_to(&self, cx: &Context) -> bool {
        self.visible_to
            .as_ref()
            .is_none_or(|audience| audience.0(cx))
    }

    /// Runs the tool.
    pub(super) async fn call(&self, mut given: Given) -> Result<CallToolResult, RpcError> {
        let declared = &given.context().caller().capabilities;
        asks::check(&self.asks, &self.extensions, declared)?;
        if let Some(compiled) = &self.compiled
            && let Err(why) = compiled.checks.arguments(given.arguments())
        {
            return Ok(misfit(&why));
        }
        if let Some(at_once) = &self.at_once {
            let permit = at_once.clone().try_acquire_owned();
            given.hold(permit.map_err(|_| overloaded())?);
        }
        // Kept here too, for handlers that do not keep it themselves.
        let _permits = given.permits();
        let form = given.context().caller().dialect.structured_content;
        let mut result = self.handler.call(given).await?;
        if result.is_error != Some(true) {
            self.check_output(&result)?;
        }
        if form == StructuredContent::Object && self.must_wrap(&result) {
            output::wrap(&mut result)?;
        }
        Ok(result)
    }

    /// Returns whether the structured content has to be wrapped for a revision that allows objects only.
    fn must_wrap(&self, result: &CallToolResult) -> bool {
        let Some(output) = &result.structured_content else {
            return false;
        };
        let by_schema = self
            .compiled
            .as_ref()
            .is_some_and(|compiled| compiled.wraps);
        // The output schema does not apply to errors.
        (by_schema && result.is_error != Some(true)) || !output.is_object()
    }

    /// Returns the definition for the era of `dialect`, with this name. Members that a single legacy revision does not have are removed
    /// later.
    pub(super) fn definition_for(&self, name: &str, dialect: &Dialect) -> bowline_types::Tool {
        let mut definition = self.definition.clone();
        name.clone_into(&mut definition.name);
        if dialect.structured_content != StructuredContent::Any {
            definition.output_schema = definition.output_schema.as_ref().map(schema::of_object);
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
        let complaint = match (&result.structured_content, &self.compiled) {
            (None, _) => "there is no structured output".to_owned(),
            (Some(output), Some(compiled)) => match compiled.checks.output(output) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            (Some(_), None) => return Ok(()),
        };
        tracing::error!(
            tool = self.name(),
            complaint,
            "output does not fit its schema"
        );
        Err(RpcError::new(
            ErrorCode::INTERNAL_ERROR,
            "the tool's output does not fit its schema",
        ))
    }

    fn compile(&self) -> Result<Compiled, String> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        if self.definition.name.is_empty() {
            return Err("it has no name".to_owned());
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(format!(
                "{scope:?} is not a scope: one word of ASCII without quotes"
            ));
        }
        for id in &self.extensions {
            check_extension_id(id).map_err(|error| format!("the extension `{id}`: {error}"))?;
        }
        for (key, _) in self.definition.meta.iter().flat_map(Meta::iter) {
            check_meta_key(key)
                .map_err(|error| format!("the key `{key}` of its `_meta`: {error}"))?;
        }
        let input = &self.definition.input_schema;
        let output = self.definition.output_schema.as_ref();
        must_be_of_object(input)?;
        if output.is_some_and(|output| !output.is_object()) {
            return Err("its output schema is not a JSON object".to_owned());
        }
        let param_headers = ParamHeaders::read(input).map_err(|error| error.to_string())?;
        Ok(Compiled {
            checks: Checks::compile(input, output)?,
            wraps: output.is_some_and(schema::needs_wrapping),
            param_headers: (!param_headers.is_empty()).then(|| Arc::new(param_headers)),
        })
    }

    fn misuse(&self, why: &str) -> Error {
        Error::misuse(format!(
            "the tool `{}` cannot be offered: {why}",
            self.name()
        ))
    }

    fn annotated(mut self, change: impl FnOnce(&mut ToolAnnotations)) -> Self {
        change(self.definition.annotations.get_or_insert_default());
        self
    }
}

/// Something whose methods are tools, such as a type with `#[tools]` on its `impl` block.
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
pub trait Toolbox {
    /// The tools, which share what was in the box.
    fn into_tools(self) -> Vec<Tool>;
}

impl<T: Into<Tool>> Toolbox for Vec<T> {
    fn into_tools(self) -> Vec<Tool> {
        self.into_iter().map(Into::into).collect()
    }
}

/// A function that makes a tool stands for the tool.
///
/// # Examples
///
/// ```
/// use bowline::{Server, Tool};
///
/// fn noon() -> Tool {
///     Tool::new("noon", async || "noon").description("Says what time it is.")
/// }
///
/// let server = Server::new("clock", "1.0.0").tool(noon);
/// ```
impl<F: FnOnce() -> Self> From<F> for Tool {
    fn from(make: F) -> Self {
        make()
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

fn must_be_of_object(schema: &Json) -> Result<(), String> {
    let object: Option<Value> = schema.decode().ok();
    let of_object = object
        .as_ref()
        .and_then(|schema| schema.get("type"))
        .is_some_and(|kind| kind == "object");
    if of_object {
        return Ok(());
    }
    Err("its input schema is not that of an object: its `type` must be `object`".to_owned())
}

/// Whether this is a `scope-token` of OAuth: it stands between quotes and spaces in a header.
fn is_scope(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    !text.is_empty() && text.bytes().all(is_fine)
}

/// What a model is told about arguments that do not fit.
fn misfit(why: &str) -> CallToolResult {
    CallToolResult::error(format!("the arguments do not fit:\n{why}"))
}

fn overloaded() -> RpcError {
    RpcError::new(
        ErrorCode::INTERNAL_ERROR,
        "overloaded: too many calls of this tool are running",
    )
}

/// The error for params or arguments of the wrong shape.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
pub fn invalid_params(error: serde_json::Error) -> RpcError {
    RpcError::new(
        ErrorCode::INVALID_PARAMS,
        format!("invalid params: {}", shortened(error)),
    )
}

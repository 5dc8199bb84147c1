//! [`Prompt`]: a template of messages that a user selects and a handler renders.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bowline_core::era::Dialect;
use bowline_types::{
    ErrorCode, GetPromptResult, Icon, Json, PromptArgument, PromptMessage, Role, RpcError,
};
use serde::Deserialize;

use super::extract::{HandlerRequirements, Parameters, RequiredState};
use super::function::IntoDefinition;
use super::handler::Handler;
use super::pagination::ListEntry;
use super::string_arguments::{self, StringArgsHandler};
use super::tool::invalid_params;
use super::tool_error::ToolError;
use super::visibility::{Visibility, Visible};
use crate::exchange::{BoxFuture, Context};

/// A prompt and the handler behind it.
///
/// # Examples
///
/// ```
/// use bowline::{Prompt, Server};
///
/// let review = Prompt::raw("review", async |arguments, _cx| {
///     Ok(format!("Please review this code:\n{}", arguments["code"]))
/// })
/// .description("Reviews code.")
/// .required("code", "what to review");
/// let server = Server::new("reviewer", "1.0.0").prompt(review);
/// ```
#[derive(Clone)]
#[must_use = "a prompt does nothing until it is added with `Server::prompt`"]
pub struct Prompt {
    definition: bowline_types::Prompt,
    handler: Arc<dyn PromptHandler>,
    states: Vec<RequiredState>,
    visibility: Visibility,
}

/// The handler of a [`Prompt`].
pub trait PromptHandler: Send + Sync + 'static {
    /// Renders the prompt. The future is dropped if the request is cancelled.
    fn render<'a>(
        &'a self,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<'a, Result<GetPromptResult, RpcError>>;
}

/// A return type of a prompt handler.
#[diagnostic::on_unimplemented(
    message = "a prompt cannot return `{Self}`",
    label = "cannot be converted into a `GetPromptResult`",
    note = "a prompt returns text, `PromptMessage`s, a `GetPromptResult`, or a `Result` of one of these with any \
            error type that `ToolError` can be made from"
)]
pub trait IntoPromptResult {
    /// Converts it into the result of `prompts/get`.
    ///
    /// # Errors
    ///
    /// If the prompt cannot be rendered.
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError>;
}

impl Prompt {
    /// Creates a prompt from an `async fn` that takes up to eight extractors ([`Extract`](super::Extract)).
    ///
    /// The fields of its [`Args`](super::Args) are the arguments of the prompt, which are strings in the protocol;
    /// numbers and `bool`s are parsed from them.
    ///
    /// # Examples
    ///
    /// A closure that captures clones into its future:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::Prompt;
    ///
    /// let style: Arc<str> = "in three steps".into();
    /// let explain = Prompt::new("explain", move || {
    ///     let style = style.clone();
    ///     async move { format!("Explain how to tie a bowline, {style}.") }
    /// });
    /// ```
    pub fn new<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoPromptResult, Future: Send>,
        E: Parameters,
    {
        let requirements = HandlerRequirements::of::<E>();
        let mut definition = bowline_types::Prompt::new(name);
        let arguments = string_arguments::prompt_arguments(&requirements);
        definition.arguments = (!arguments.is_empty()).then_some(arguments);
        let mut prompt = Self::with_handler(
            definition,
            StringArgsHandler::<H, E>::new(handler, &requirements),
        );
        prompt.states = requirements.states().to_vec();
        prompt
    }

    /// Creates a prompt from a function of the arguments by name. Required arguments are always present.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::Prompt;
    ///
    /// let style = Arc::new("briefly".to_owned());
    /// let explain = Prompt::raw("explain", move |arguments, _cx| {
    ///     let style = style.clone();
    ///     async move {
    ///         let line: u32 = arguments["line"].parse()?;
    ///         Ok(format!("Explain line {line} {style}."))
    ///     }
    /// })
    /// .required("line", "the number of the line");
    /// ```
    pub fn raw<H, F, R>(name: impl Into<String>, handler: H) -> Self
    where
        H: Fn(BTreeMap<String, String>, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoPromptResult,
    {
        Self::with_handler(bowline_types::Prompt::new(name), PromptFn(handler))
    }

    /// Returns the prompt that a function with `#[prompt]` defines.
    pub fn of<M>(function: impl IntoDefinition<Self, M>) -> Self {
        function.into_definition()
    }

    /// Creates a prompt from its definition and a [`PromptHandler`].
    pub fn with_handler(definition: bowline_types::Prompt, handler: impl PromptHandler) -> Self {
        Self {
            definition,
            handler: Arc::new(handler),
            states: Vec::new(),
            visibility: Visibility::default(),
        }
    }

    /// Sets the title that user interfaces show.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Sets the description of the prompt.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Sets the icons that user interfaces may show.
    pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.definition.icons = Some(icons.into_iter().collect());
        self
    }

    /// Adds a required argument.
    pub fn required(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let mut argument = PromptArgument::new(name);
        argument.description = Some(description.into());
        argument.required = Some(true);
        self.argument(argument)
    }

    /// Adds an optional argument.
    pub fn optional(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let mut argument = PromptArgument::new(name);
        argument.description = Some(description.into());
        argument.required = Some(false);
        self.argument(argument)
    }

    /// Adds an argument.
    pub fn argument(mut self, argument: PromptArgument) -> Self {
        self.definition
            .arguments
            .get_or_insert_default()
            .push(argument);
        self
    }

    /// Hides the prompt from callers for which `filter` returns false: it is not listed, and the answer is the same as
    /// for an unknown prompt, also to requests for completions.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Prompt;
    /// let auditor = "ada".to_owned();
    /// let audit = Prompt::raw("audit", async |_, _| Ok("Audit the logs."))
    ///     .visible_to(move |cx| cx.principal().name() == Some(&auditor));
    /// ```
    pub fn visible_to(mut self, filter: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        self.visibility = Visibility::filtered(filter);
        self
    }

    /// Returns the name of the prompt.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(super) fn states(&self) -> &[RequiredState] {
        &self.states
    }

    pub(super) fn has_argument(&self, argument: &str) -> bool {
        let mut arguments = self.definition.arguments.iter().flatten();
        arguments.any(|taken| taken.name == argument)
    }

    /// Checks that all required arguments are present, and renders the prompt.
    pub(super) async fn render(
        &self,
        params: GetPromptParams,
        cx: Context,
    ) -> Result<GetPromptResult, RpcError> {
        let arguments = params.arguments.unwrap_or_default();
        let required = self.definition.arguments.iter().flatten();
        for argument in required.filter(|argument| argument.required == Some(true)) {
            if !arguments.contains_key(&argument.name) {
                let why = format!("missing required argument `{}`", argument.name);
                return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
            }
        }
        let mut result = self.handler.render(arguments, cx).await?;
        if result.description.is_none() {
            result.description.clone_from(&self.definition.description);
        }
        Ok(result)
    }
}

impl ListEntry for Prompt {
    type Definition = bowline_types::Prompt;
    const MEMBER: &'static str = "prompts";

    fn list_definition(&self, name: &str, _: &Dialect) -> bowline_types::Prompt {
        let mut definition = self.definition.clone();
        name.clone_into(&mut definition.name);
        definition
    }
}

impl Visible for Prompt {
    fn visibility(&self) -> &Visibility {
        &self.visibility
    }
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompt")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// The members of the params of `prompts/get` that are read.
#[derive(Deserialize)]
pub(super) struct GetPromptParams {
    pub(super) name: String,
    arguments: Option<BTreeMap<String, String>>,
}

impl GetPromptParams {
    pub(super) fn read(params: &Json) -> Result<Self, RpcError> {
        params.decode().map_err(invalid_params)
    }
}

/// The handler for a function of the arguments by name.
struct PromptFn<H>(H);

impl<H, F, R> PromptHandler for PromptFn<H>
where
    H: Fn(BTreeMap<String, String>, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: IntoPromptResult,
{
    fn render<'a>(
        &'a self,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<'a, Result<GetPromptResult, RpcError>> {
        let rendered = self.0(arguments, cx);
        Box::pin(async { rendered.await.into_prompt_result() })
    }
}

impl IntoPromptResult for GetPromptResult {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        Ok(self)
    }
}

impl<T: IntoPromptResult, E: Into<ToolError>> IntoPromptResult for Result<T, E> {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        self.map_err(Into::into)?.into_prompt_result()
    }
}

impl IntoPromptResult for Vec<PromptMessage> {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        Ok(GetPromptResult::new(self))
    }
}

impl IntoPromptResult for PromptMessage {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        Ok(GetPromptResult::new(vec![self]))
    }
}

/// One message with the role `user`.
impl IntoPromptResult for String {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        let text = bowline_types::TextContent::new(self);
        PromptMessage::new(Role::User, text).into_prompt_result()
    }
}

/// One message with the role `user`.
impl IntoPromptResult for &str {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        self.to_owned().into_prompt_result()
    }
}

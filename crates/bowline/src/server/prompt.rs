//! Prompts: messages that a user picks, filled in by a handler.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bowline_core::era::Dialect;
use bowline_types::{
    ErrorCode, GetPromptResult, Icon, Json, PromptArgument, PromptMessage, Role, RpcError,
};
use serde::Deserialize;

use super::extract::{NeededState, Needs, Parameters};
use super::handler::Handler;
use super::page::Listed;
use super::texts::{self, OfTexts};
use super::tool::invalid_params;
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
#[must_use = "a prompt is offered by `Server::prompt`"]
pub struct Prompt {
    definition: bowline_types::Prompt,
    handler: Arc<dyn PromptHandler>,
    states: Vec<NeededState>,
}

/// What is behind a [`Prompt`].
pub trait PromptHandler: Send + Sync + 'static {
    /// Fills the prompt in. The future is dropped if the caller gives up.
    fn render<'a>(
        &'a self,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<'a, Result<GetPromptResult, RpcError>>;
}

/// What a prompt's handler may return.
#[diagnostic::on_unimplemented(
    message = "a prompt cannot return `{Self}`",
    label = "has no form as the result of a prompt",
    note = "a prompt returns text, `PromptMessage`s, a `GetPromptResult`, or a `Result` of one of these whose \
            error is `RpcError`"
)]
pub trait IntoPromptResult {
    /// The result of `prompts/get`.
    ///
    /// # Errors
    ///
    /// If the prompt could not be filled in.
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError>;
}

impl Prompt {
    /// A prompt whose handler is an `async fn` of up to eight extractors, each an
    /// [`Extract`](super::Extract).
    ///
    /// The fields of its [`Args`](super::Args) are the arguments of the prompt. They arrive as text; what
    /// is a number or a `bool` is read from it.
    pub fn new<H, E>(name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<E, Output: IntoPromptResult, Future: Send>,
        E: Parameters,
    {
        let needs = Needs::of::<E>();
        let mut definition = bowline_types::Prompt::new(name);
        let arguments = texts::prompt_arguments(&needs);
        definition.arguments = (!arguments.is_empty()).then_some(arguments);
        let mut prompt = Self::with_handler(definition, OfTexts::<H, E>::new(handler, &needs));
        prompt.states = needs.states().to_vec();
        prompt
    }

    /// A prompt whose handler takes the arguments as they come: text by name. Required ones are there.
    pub fn raw<H, F, R>(name: impl Into<String>, handler: H) -> Self
    where
        H: Fn(BTreeMap<String, String>, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoPromptResult,
    {
        Self::with_handler(bowline_types::Prompt::new(name), Function(handler))
    }

    /// A prompt with a handler of one's own.
    pub fn with_handler(definition: bowline_types::Prompt, handler: impl PromptHandler) -> Self {
        Self {
            definition,
            handler: Arc::new(handler),
            states: Vec::new(),
        }
    }

    /// Names the prompt, for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition.title = Some(title.into());
        self
    }

    /// Says what the prompt gives.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Says how the prompt may be shown.
    pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
        self.definition.icons = Some(icons.into_iter().collect());
        self
    }

    /// Takes an argument that has to be given.
    pub fn required(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let mut argument = PromptArgument::new(name);
        argument.description = Some(description.into());
        argument.required = Some(true);
        self.argument(argument)
    }

    /// Takes an argument that may be given.
    pub fn optional(self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let mut argument = PromptArgument::new(name);
        argument.description = Some(description.into());
        argument.required = Some(false);
        self.argument(argument)
    }

    /// Takes an argument.
    pub fn argument(mut self, argument: PromptArgument) -> Self {
        self.definition
            .arguments
            .get_or_insert_default()
            .push(argument);
        self
    }

    /// The name under which it is asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(super) fn states(&self) -> &[NeededState] {
        &self.states
    }

    pub(super) fn takes(&self, argument: &str) -> bool {
        let mut arguments = self.definition.arguments.iter().flatten();
        arguments.any(|taken| taken.name == argument)
    }

    /// Fills the prompt in, if what it needs is there.
    pub(super) async fn render(
        &self,
        asked: Asked,
        cx: Context,
    ) -> Result<GetPromptResult, RpcError> {
        let given = asked.arguments.unwrap_or_default();
        let required = self.definition.arguments.iter().flatten();
        for argument in required.filter(|argument| argument.required == Some(true)) {
            if !given.contains_key(&argument.name) {
                let why = format!("the prompt needs the argument `{}`", argument.name);
                return Err(RpcError::new(ErrorCode::INVALID_PARAMS, why));
            }
        }
        let mut result = self.handler.render(given, cx).await?;
        if result.description.is_none() {
            result.description.clone_from(&self.definition.description);
        }
        Ok(result)
    }
}

/// A function that makes a prompt stands for the prompt.
impl<F: FnOnce() -> Self> From<F> for Prompt {
    fn from(make: F) -> Self {
        make()
    }
}

impl Listed for Prompt {
    type Definition = bowline_types::Prompt;
    const MEMBER: &'static str = "prompts";

    fn listed_as(&self, name: &str, _: &Dialect) -> bowline_types::Prompt {
        let mut definition = self.definition.clone();
        name.clone_into(&mut definition.name);
        definition
    }
}

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompt")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// The params of `prompts/get` as far as the prompt needs them.
#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) name: String,
    arguments: Option<BTreeMap<String, String>>,
}

impl Asked {
    pub(super) fn read(params: &Json) -> Result<Self, RpcError> {
        params.decode().map_err(invalid_params)
    }
}

/// A function as a handler.
struct Function<H>(H);

impl<H, F, R> PromptHandler for Function<H>
where
    H: Fn(BTreeMap<String, String>, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, RpcError>> + Send + 'static,
    R: IntoPromptResult,
{
    fn render<'a>(
        &'a self,
        arguments: BTreeMap<String, String>,
        cx: Context,
    ) -> BoxFuture<'a, Result<GetPromptResult, RpcError>> {
        let rendered = self.0(arguments, cx);
        Box::pin(async { rendered.await.and_then(R::into_prompt_result) })
    }
}

impl IntoPromptResult for GetPromptResult {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        Ok(self)
    }
}

impl<T: IntoPromptResult> IntoPromptResult for Result<T, RpcError> {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        self.and_then(T::into_prompt_result)
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

/// One message from the user.
impl IntoPromptResult for String {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        let text = bowline_types::TextContent::new(self);
        PromptMessage::new(Role::User, text).into_prompt_result()
    }
}

/// One message from the user.
impl IntoPromptResult for &str {
    fn into_prompt_result(self) -> Result<GetPromptResult, RpcError> {
        self.to_owned().into_prompt_result()
    }
}

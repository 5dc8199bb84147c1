//! `completion/complete`: suggestions for an argument of a prompt or a variable of a resource template.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bowline_types::{CompleteReference, CompleteRequestParams, Completion, ErrorCode, RpcError};

use super::ServerDefinition;
use super::extract::{HandlerRequirements, Parameters, RequiredState};
use super::function::IntoDefinition;
use super::handler::Handler;
use super::string_arguments::StringArgsHandler;
use super::tool_error::ToolError;
use super::visibility::{Visibility, Visible};
use crate::exchange::{BoxFuture, Context};

/// Suggests values for one argument of a prompt or one variable of a resource template.
///
/// # Examples
///
/// ```
/// use bowline::server::Completer;
/// use bowline::{Prompt, Server};
///
/// let greet = Prompt::raw("greet", async |arguments, _cx| Ok(format!("Greet in {}.", arguments["language"])))
///     .required("language", "which one");
/// let languages = Completer::for_prompt("greet", "language", async |input, _cx| {
///     Ok(input.matching(["Danish", "Dutch", "French"]))
/// });
/// let server = Server::new("greeter", "1.0.0").prompt(greet).completer(languages);
/// ```
#[derive(Clone)]
#[must_use = "a completer does nothing until it is added with `Server::completer`"]
pub struct Completer {
    pub(super) target: CompletionTarget,
    handler: Arc<dyn CompletionHandler>,
    states: Vec<RequiredState>,
    visibility: Visibility,
}

/// The handler of a [`Completer`].
pub trait CompletionHandler: Send + Sync + 'static {
    /// Returns the suggestions, best first. The future is dropped if the request is cancelled.
    fn complete<'a>(
        &'a self,
        input: CompletionInput,
        cx: Context,
    ) -> BoxFuture<'a, Result<Completion, RpcError>>;
}

/// The input of a completer: the partial value, and the other arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionInput {
    /// The value as typed so far.
    pub value: String,
    /// The arguments that the client has already resolved. Empty before 2025-06-18, where clients cannot send them.
    pub arguments: BTreeMap<String, String>,
}

/// A return type of a completer. At most 100 values are sent.
#[diagnostic::on_unimplemented(
    message = "a completer cannot return `{Self}`",
    label = "cannot be converted into a `Completion`",
    note = "a completer returns a `Vec` of texts, a `Completion`, or a `Result` of one of these with any error type \
            that `ToolError` can be made from"
)]
pub trait IntoCompletion {
    /// Converts it into the result of `completion/complete`.
    ///
    /// # Errors
    ///
    /// If there are no suggestions because of an error.
    fn into_completion(self) -> Result<Completion, RpcError>;
}

/// The prompt argument or template variable that is completed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CompletionTarget {
    Prompt { name: String, argument: String },
    Template { uri: String, variable: String },
}

/// No prompt has an empty name, so that this is reported as unknown.
impl Default for CompletionTarget {
    fn default() -> Self {
        Self::Prompt {
            name: String::new(),
            argument: String::new(),
        }
    }
}

impl fmt::Display for CompletionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt { name, argument } => {
                write!(f, "argument `{argument}` of prompt `{name}`")
            }
            Self::Template { uri, variable } => {
                write!(f, "variable `{variable}` of template `{uri}`")
            }
        }
    }
}

impl Completer {
    /// Creates a completer from an `async fn` that takes up to eight extractors ([`Extract`](super::Extract)), among
    /// them the [`CompletionInput`]. `reference` names the prompt or the resource template.
    ///
    /// The fields of its [`Args`](super::Args) are the other arguments, as far as the client has resolved them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::State;
    /// use bowline::server::{Completer, CompletionInput};
    /// use bowline::types::{Completion, PromptReference};
    ///
    /// async fn languages(input: CompletionInput, State(known): State<Arc<Vec<String>>>) -> Completion {
    ///     input.matching(known.iter())
    /// }
    ///
    /// let completer = Completer::new(PromptReference::new("greet"), "language", languages);
    /// ```
    pub fn new<H, E>(
        reference: impl Into<CompleteReference>,
        argument: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Handler<E, Output: IntoCompletion, Future: Send>,
        E: Parameters,
    {
        let requirements = HandlerRequirements::of::<E>();
        Self {
            target: CompletionTarget::new(&reference.into(), argument.into()).unwrap_or_default(),
            handler: Arc::new(StringArgsHandler::<H, E>::new(handler, &requirements)),
            states: requirements.states().to_vec(),
            visibility: Visibility::default(),
        }
    }

    /// Returns the completer that a function with `#[completion]` defines.
    pub fn of<M>(function: impl IntoDefinition<Self, M>) -> Self {
        function.into_definition()
    }

    /// Creates a completer for an argument of a prompt.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::server::Completer;
    ///
    /// let languages = Arc::new(vec!["Danish".to_owned(), "Dutch".to_owned()]);
    /// let completer = Completer::for_prompt("greet", "language", move |input, _cx| {
    ///     let languages = languages.clone();
    ///     async move { Ok(input.matching(languages.iter())) }
    /// });
    /// ```
    pub fn for_prompt<H, F, R>(
        prompt: impl Into<String>,
        argument: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Fn(CompletionInput, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoCompletion,
    {
        let (name, argument) = (prompt.into(), argument.into());
        Self {
            target: CompletionTarget::Prompt { name, argument },
            handler: Arc::new(CompletionFn(handler)),
            states: Vec::new(),
            visibility: Visibility::default(),
        }
    }

    /// Creates a completer for a variable of the resource template with this text.
    ///
    /// In the function, `?` makes a [`ToolError`] of any error.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use bowline::server::Completer;
    ///
    /// let folder = PathBuf::from("notes");
    /// let completer = Completer::for_template("notes://{name}", "name", move |input, _cx| {
    ///     let folder = folder.clone();
    ///     async move {
    ///         let mut names = Vec::new();
    ///         for file in std::fs::read_dir(folder)? {
    ///             names.push(file?.file_name().to_string_lossy().into_owned());
    ///         }
    ///         Ok(input.matching(names))
    ///     }
    /// });
    /// ```
    pub fn for_template<H, F, R>(
        template: impl Into<String>,
        variable: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Fn(CompletionInput, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoCompletion,
    {
        let (uri, variable) = (template.into(), variable.into());
        Self {
            target: CompletionTarget::Template { uri, variable },
            handler: Arc::new(CompletionFn(handler)),
            states: Vec::new(),
            visibility: Visibility::default(),
        }
    }

    /// Hides the completer from callers for which `filter` returns false: the argument has no suggestions for them. A
    /// completer is also hidden with its prompt or resource template.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::server::Completer;
    ///
    /// let customers = Completer::for_prompt("invoice", "customer", async |input, _| {
    ///     Ok(input.matching(["Lovelace", "Turing"]))
    /// });
    /// let staff = vec!["ada".to_owned()];
    /// let customers = customers.visible_to(move |cx| {
    ///     let name = cx.principal().name();
    ///     name.is_some_and(|name| staff.iter().any(|member| member == name))
    /// });
    /// ```
    pub fn visible_to(mut self, filter: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        self.visibility = Visibility::filtered(filter);
        self
    }

    pub(super) fn states(&self) -> &[RequiredState] {
        &self.states
    }

    /// Replaces the handler by a [`CompletionHandler`].
    pub fn with_handler(mut self, handler: impl CompletionHandler) -> Self {
        self.handler = Arc::new(handler);
        self
    }
}

impl CompletionInput {
    /// Returns those of `values` that start with the typed text, ignoring case.
    #[must_use]
    pub fn matching<S: Into<String>>(&self, values: impl IntoIterator<Item = S>) -> Completion {
        let prefix = self.value.to_lowercase();
        let values = values.into_iter().map(Into::into);
        let matches = values.filter(|value| value.to_lowercase().starts_with(&prefix));
        Completion::new(matches.collect())
    }
}

/// Answers `completion/complete`.
pub(super) async fn complete(
    definition: &ServerDefinition,
    params: CompleteRequestParams,
    mut cx: Context,
) -> Result<Completion, RpcError> {
    let unknown = || {
        let why = "unknown prompt, resource template or argument";
        RpcError::new(ErrorCode::INVALID_PARAMS, why)
    };
    let target = CompletionTarget::new(&params.reference, params.argument.name.clone())
        .ok_or_else(unknown)?;
    let completers = definition.completers.snapshot();
    if !target.exists_for(Some(&cx), definition) {
        return Err(unknown());
    }
    let entry = completers.find(&target);
    let entry = entry.filter(|entry| entry.is_visible_to(&cx));
    // An existing argument without a completer has no suggestions, which is not an error.
    let Some(entry) = entry else {
        return Ok(Completion::default());
    };
    cx.extensions_mut().extend(&entry.state);
    let context = params.context.and_then(|context| context.arguments);
    let input = CompletionInput {
        value: params.argument.value,
        arguments: context.unwrap_or_default(),
    };
    let completion = entry.item.handler.complete(input, cx).await?;
    Ok(truncated(completion))
}

impl CompletionTarget {
    /// Returns `None` for an unknown type of reference.
    fn new(reference: &CompleteReference, argument: String) -> Option<Self> {
        match reference {
            CompleteReference::Resource(of) => Some(Self::Template {
                uri: of.uri.clone(),
                variable: argument,
            }),
            CompleteReference::Prompt(of) => Some(Self::Prompt {
                name: of.name.clone(),
                argument,
            }),
            _ => None,
        }
    }

    /// Returns whether the prompt or template exists and has the argument.
    pub(super) fn exists(&self, definition: &ServerDefinition) -> bool {
        self.exists_for(None, definition)
    }

    /// Returns whether it [exists](Self::exists) and the caller, if there is one, sees the prompt or template.
    fn exists_for(&self, caller: Option<&Context>, definition: &ServerDefinition) -> bool {
        match self {
            Self::Prompt { name, argument } => {
                let prompts = definition.prompts.snapshot();
                prompts.find(name).is_some_and(|entry| {
                    caller.is_none_or(|cx| entry.is_visible_to(cx))
                        && entry.item.has_argument(argument)
                })
            }
            Self::Template { uri, variable } => {
                let templates = definition.templates.snapshot();
                templates.find(uri).is_some_and(|entry| {
                    let mut names = entry.item.uri_template().variables();
                    caller.is_none_or(|cx| entry.is_visible_to(cx))
                        && names.any(|name| name == variable)
                })
            }
        }
    }

    /// Returns whether this is an argument of the prompt with this name.
    pub(super) fn is_of_prompt(&self, prompt: &str) -> bool {
        matches!(self, Self::Prompt { name, .. } if name == prompt)
    }

    /// Returns whether this is a variable of the resource template with this text.
    pub(super) fn is_of_template(&self, template: &str) -> bool {
        matches!(self, Self::Template { uri, .. } if uri == template)
    }
}

/// Truncates the values to the maximum of the specification, and sets `total` and `hasMore`.
fn truncated(mut completion: Completion) -> Completion {
    if completion.values.len() > Completion::MAX_VALUES {
        completion
            .total
            .get_or_insert(completion.values.len() as u64);
        completion.has_more = Some(true);
        completion.values.truncate(Completion::MAX_VALUES);
    }
    completion
}

/// The handler for a function.
struct CompletionFn<H>(H);

impl<H, F, R> CompletionHandler for CompletionFn<H>
where
    H: Fn(CompletionInput, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: IntoCompletion,
{
    fn complete<'a>(
        &'a self,
        input: CompletionInput,
        cx: Context,
    ) -> BoxFuture<'a, Result<Completion, RpcError>> {
        let suggestions = self.0(input, cx);
        Box::pin(async { suggestions.await.into_completion() })
    }
}

impl IntoCompletion for Completion {
    fn into_completion(self) -> Result<Completion, RpcError> {
        Ok(self)
    }
}

impl<T: IntoCompletion, E: Into<ToolError>> IntoCompletion for Result<T, E> {
    fn into_completion(self) -> Result<Completion, RpcError> {
        self.map_err(Into::into)?.into_completion()
    }
}

impl<S: Into<String>> IntoCompletion for Vec<S> {
    fn into_completion(self) -> Result<Completion, RpcError> {
        Ok(Completion::new(self.into_iter().map(Into::into).collect()))
    }
}

impl Visible for Completer {
    fn visibility(&self) -> &Visibility {
        &self.visibility
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

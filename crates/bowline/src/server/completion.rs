//! Completion: proposals for an argument of a prompt or a variable of a template, while it is typed.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bowline_types::{CompleteReference, CompleteRequestParams, Completion, ErrorCode, RpcError};

use super::Offer;
use crate::exchange::{BoxFuture, Context};

/// Proposes values for one argument.
///
/// # Examples
///
/// ```
/// use bowline::server::Completer;
/// use bowline::{Prompt, Server};
///
/// let greet = Prompt::raw("greet", async |arguments, _cx| Ok(format!("Greet in {}.", arguments["language"])))
///     .required("language", "which one");
/// let languages = Completer::for_prompt("greet", "language", async |typing, _cx| {
///     Ok(typing.among(["Danish", "Dutch", "French"]))
/// });
/// let server = Server::new("greeter", "1.0.0").prompt(greet).completion(languages);
/// ```
#[derive(Clone)]
#[must_use = "a completer is offered by `Server::completion`"]
pub struct Completer {
    pub(super) target: Target,
    handler: Arc<dyn CompletionHandler>,
}

/// What is behind a [`Completer`].
pub trait CompletionHandler: Send + Sync + 'static {
    /// Proposes values, best first. The future is dropped if the caller gives up.
    fn complete<'a>(
        &'a self,
        typing: Typing,
        cx: Context,
    ) -> BoxFuture<'a, Result<Completion, RpcError>>;
}

/// What was typed so far, and what was decided before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Typing {
    /// The beginning of the value.
    pub value: String,
    /// The other arguments, as far as they are known.
    pub arguments: BTreeMap<String, String>,
}

/// What a completer's handler may return. Of more than a hundred values the first hundred are sent.
pub trait IntoCompletion {
    /// The proposals.
    fn into_completion(self) -> Completion;
}

/// Whose argument it is, and which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Prompt { name: String, argument: String },
    Template { uri: String, variable: String },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt { name, argument } => write!(f, "`{argument}` of the prompt `{name}`"),
            Self::Template { uri, variable } => write!(f, "`{variable}` of the template `{uri}`"),
        }
    }
}

impl Completer {
    /// Proposes values for an argument of a prompt.
    pub fn for_prompt<H, F, R>(
        prompt: impl Into<String>,
        argument: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Fn(Typing, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoCompletion,
    {
        let (name, argument) = (prompt.into(), argument.into());
        Self {
            target: Target::Prompt { name, argument },
            handler: Arc::new(Function(handler)),
        }
    }

    /// Proposes values for a variable of a resource template, which is named by its text.
    pub fn for_template<H, F, R>(
        template: impl Into<String>,
        variable: impl Into<String>,
        handler: H,
    ) -> Self
    where
        H: Fn(Typing, Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoCompletion,
    {
        let (uri, variable) = (template.into(), variable.into());
        Self {
            target: Target::Template { uri, variable },
            handler: Arc::new(Function(handler)),
        }
    }

    /// Proposes values by a handler of one's own.
    pub fn with_handler(mut self, handler: impl CompletionHandler) -> Self {
        self.handler = Arc::new(handler);
        self
    }
}

impl Typing {
    /// Those of some values that begin with what was typed, whatever their case.
    #[must_use]
    pub fn among<S: Into<String>>(&self, values: impl IntoIterator<Item = S>) -> Completion {
        let beginning = self.value.to_lowercase();
        let values = values.into_iter().map(Into::into);
        let fitting = values.filter(|value| value.to_lowercase().starts_with(&beginning));
        Completion::new(fitting.collect())
    }
}

/// Answers `completion/complete`.
pub(super) async fn complete(
    offer: &Offer,
    asked: CompleteRequestParams,
    mut cx: Context,
) -> Result<Completion, RpcError> {
    let target = Target::of(&asked);
    let offered = offer.completers.get(&target);
    if !target.exists(offer, offered.is_some()) {
        return Err(RpcError::new(
            ErrorCode::INVALID_PARAMS,
            "there is no such argument to complete",
        ));
    }
    // Something that exists and has nothing to propose is not a mistake.
    let Some(offered) = offered else {
        return Ok(Completion::default());
    };
    cx.extensions_mut().extend(&offered.state);
    let context = asked.context.and_then(|context| context.arguments);
    let typing = Typing {
        value: asked.argument.value,
        arguments: context.unwrap_or_default(),
    };
    let completion = offered.item.handler.complete(typing, cx).await?;
    Ok(cut(completion))
}

impl Target {
    fn of(asked: &CompleteRequestParams) -> Self {
        let argument = asked.argument.name.clone();
        match &asked.reference {
            CompleteReference::Resource(of) => Self::Template {
                uri: of.uri.clone(),
                variable: argument,
            },
            CompleteReference::Prompt(of) => Self::Prompt {
                name: of.name.clone(),
                argument,
            },
            _ => Self::Prompt {
                name: String::new(),
                argument,
            },
        }
    }

    /// Whether the prompt or template is offered, and has the argument if nobody completes it.
    fn exists(&self, offer: &Offer, is_completed: bool) -> bool {
        match self {
            Self::Prompt { name, argument } => {
                let prompts = offer.prompts.now();
                let prompt = prompts.find(name);
                prompt.is_some_and(|offered| is_completed || offered.item.takes(argument))
            }
            Self::Template { uri, variable } => {
                let templates = offer.templates.now();
                templates.find(uri).is_some_and(|offered| {
                    let mut names = offered.item.uri_template().variables();
                    is_completed || names.any(|name| name == variable)
                })
            }
        }
    }
}

/// Leaves as many values as may be sent, and says that there are more.
fn cut(mut completion: Completion) -> Completion {
    if completion.values.len() > Completion::MOST {
        completion
            .total
            .get_or_insert(completion.values.len() as u64);
        completion.has_more = Some(true);
        completion.values.truncate(Completion::MOST);
    }
    completion
}

/// A function as a handler.
struct Function<H>(H);

impl<H, F, R> CompletionHandler for Function<H>
where
    H: Fn(Typing, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, RpcError>> + Send + 'static,
    R: IntoCompletion,
{
    fn complete<'a>(
        &'a self,
        typing: Typing,
        cx: Context,
    ) -> BoxFuture<'a, Result<Completion, RpcError>> {
        let proposed = self.0(typing, cx);
        Box::pin(async { proposed.await.map(R::into_completion) })
    }
}

impl IntoCompletion for Completion {
    fn into_completion(self) -> Completion {
        self
    }
}

impl<S: Into<String>> IntoCompletion for Vec<S> {
    fn into_completion(self) -> Completion {
        Completion::new(self.into_iter().map(Into::into).collect())
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

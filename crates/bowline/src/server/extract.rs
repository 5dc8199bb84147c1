//! Extractors: the parameters of handlers.

use std::any::{TypeId, type_name};
use std::sync::Arc;

use bowline_core::era::Caller;
use bowline_core::shortened;
use bowline_types::{Json, Meta};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::schema;
use crate::exchange::{Context, Principal};

/// A parameter of a handler, extracted from the request.
///
/// Implemented by [`Args`], [`State`], [`Extension`] (also in an `Option`), [`Context`], [`Principal`], `Arc<Caller>`,
/// [`Meta`] (the `_meta` of the request), [`Json`] (the undecoded arguments) and, in resource handlers,
/// [`RequestedUri`](super::RequestedUri), in completers [`CompletionInput`](super::CompletionInput).
///
/// # Examples
///
/// An extractor for a region that a layer has added to the request:
///
/// ```
/// use bowline::server::{Extract, ExtractError, HandlerInput};
///
/// struct Region(String);
///
/// impl Extract for Region {
///     fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
///         let region = input.context().extensions().get::<String>();
///         region.cloned().map(Self).ok_or_else(|| ExtractError::server("no layer has set the region"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "not an extractor",
    note = "a handler takes `Args<T>`, `State<S>`, `Extension<T>`, `Context`, `Principal`, `Arc<Caller>`, \
            `Meta` or `Json`",
    note = "the arguments of a call are one `Args<T>`, where `T` derives `serde::Deserialize` and \
            `bowline::schemars::JsonSchema`"
)]
pub trait Extract: Sized + Send + 'static {
    /// Extracts it from the request.
    ///
    /// # Errors
    ///
    /// If it is missing or invalid.
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError>;

    /// Declares the arguments and state that it requires. Called once, when the handler is registered.
    fn declare(requirements: &mut HandlerRequirements) {
        let _ = requirements;
    }
}

/// The input of extractors: the arguments, `_meta` and context of one request.
#[derive(Clone, Debug)]
pub struct HandlerInput {
    arguments: Json,
    meta: Option<Json>,
    cx: Context,
    permits: CallPermits,
}

impl HandlerInput {
    /// Creates the input from arguments, which must be a JSON object, and a context.
    #[must_use]
    pub fn new(arguments: Json, cx: Context) -> Self {
        Self {
            arguments,
            meta: None,
            cx,
            permits: CallPermits::default(),
        }
    }

    /// Sets the `_meta` of the request.
    #[must_use]
    pub fn with_meta(mut self, meta: Option<Json>) -> Self {
        self.meta = meta;
        self
    }

    /// Returns the arguments, a JSON object.
    #[must_use]
    pub fn arguments(&self) -> &Json {
        &self.arguments
    }

    /// Returns the `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_ref()
    }

    /// Returns the context of the request.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    pub(super) fn hold_permit(&mut self, permit: OwnedSemaphorePermit) {
        self.permits.0.push(Arc::new(permit));
    }

    /// Returns the permits, which must be held until the handler has ended.
    pub(super) fn permits(&self) -> CallPermits {
        self.permits.clone()
    }
}

/// The permits of a call: for the concurrency limit of the tool, and for the blocking limit of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct CallPermits(Vec<Arc<OwnedSemaphorePermit>>);

/// The error of an extractor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The arguments are invalid: an error of the caller.
    #[error("{0}")]
    Arguments(String),
    /// The server lacks a value that the handler requires.
    #[error("{0}")]
    Server(String),
}

impl ExtractError {
    /// Creates an [`ExtractError::Arguments`].
    #[must_use]
    pub fn arguments(message: impl Into<String>) -> Self {
        Self::Arguments(message.into())
    }

    /// Creates an [`ExtractError::Server`].
    #[must_use]
    pub fn server(message: impl Into<String>) -> Self {
        Self::Server(message.into())
    }
}

/// The requirements of the parameters of a handler, collected when the handler is registered.
#[derive(Clone, Debug, Default)]
pub struct HandlerRequirements {
    input_schema: Option<Json>,
    state: Vec<RequiredState>,
    has_duplicate_args: bool,
}

#[derive(Clone, Debug)]
pub(super) struct RequiredState {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
}

impl HandlerRequirements {
    /// Returns the requirements of these parameters.
    #[must_use]
    pub fn of<E: Parameters>() -> Self {
        let mut requirements = Self::default();
        E::declare(&mut requirements);
        requirements
    }

    /// Adds arguments with the schema of `T`.
    pub fn arguments<T: JsonSchema>(&mut self) {
        self.has_duplicate_args |= self.input_schema.is_some();
        self.input_schema = Some(schema::of_input::<T>());
    }

    /// Adds state of the type `S`.
    pub fn state<S: 'static>(&mut self) {
        self.state.push(RequiredState {
            id: TypeId::of::<S>(),
            name: type_name::<S>(),
        });
    }

    /// Returns the schema of the arguments, if there are any.
    #[must_use]
    pub fn input_schema(&self) -> Option<&Json> {
        self.input_schema.as_ref()
    }

    pub(super) fn states(&self) -> &[RequiredState] {
        &self.state
    }

    pub(super) fn has_duplicate_args(&self) -> bool {
        self.has_duplicate_args
    }
}

/// Extracts the arguments into `T`, whose fields are the arguments. Fields of type `Option` are optional.
///
/// # Examples
///
/// ```
/// use bowline::{Args, Tool};
/// use bowline::schemars::{self, JsonSchema};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     /// the first
///     a: i64,
///     /// the second
///     b: i64,
/// }
///
/// async fn add(Args(sum): Args<Sum>) -> i64 {
///     sum.a + sum.b
/// }
///
/// let tool = Tool::new("add", add).description("Adds two numbers.");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "handlers destructure it")]
pub struct Args<T>(pub T);

// Otherwise the compiler reports a missing `JsonSchema` without the notes of `Extract`, which say what to derive.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Extract for Args<T> {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        match input.arguments.decode() {
            Ok(arguments) => Ok(Self(arguments)),
            Err(error) => Err(ExtractError::Arguments(shortened(error).to_string())),
        }
    }

    fn declare(requirements: &mut HandlerRequirements) {
        requirements.arguments::<T>();
    }
}

/// Extracts a clone of a value that was added with [`Server::state`](super::Server::state). Use an `Arc` for values
/// that are expensive to clone.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use bowline::{Server, State, Tool};
///
/// struct Database;
///
/// async fn query(State(database): State<Arc<Database>>) -> &'static str {
///     "no rows"
/// }
///
/// let server = Server::new("db", "1.0.0").state(Arc::new(Database)).tool(Tool::new("query", query));
/// assert!(server.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "handlers destructure it")]
pub struct State<S>(pub S);

impl<S: Clone + Send + Sync + 'static> Extract for State<S> {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        let state = input.cx.state::<S>();
        state
            .cloned()
            .map(Self)
            .ok_or_else(|| missing::<S>("state"))
    }

    fn declare(requirements: &mut HandlerRequirements) {
        requirements.state::<S>();
    }
}

/// Extracts a clone of a value that the transport or a layer has added to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "handlers destructure it")]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> Extract for Extension<T> {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        let extension = input.cx.extensions().get::<T>();
        extension
            .cloned()
            .map(Self)
            .ok_or_else(|| missing::<T>("extension"))
    }
}

impl Extract for Context {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        Ok(input.cx.clone())
    }
}

impl Extract for Principal {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        Ok(input.cx.principal().clone())
    }
}

impl Extract for Arc<Caller> {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        Ok(input.cx.caller().clone())
    }
}

/// The `_meta` of the request; empty if it has none.
impl Extract for Meta {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        input.meta.as_ref().map_or_else(
            || Ok(Self::default()),
            |meta| {
                meta.decode().map_err(|error| {
                    ExtractError::Arguments(format!("`_meta`: {}", shortened(error)))
                })
            },
        )
    }
}

/// The arguments as undecoded JSON.
impl Extract for Json {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        Ok(input.arguments.clone())
    }
}

/// `None` if the request has no such extension.
impl<T: Clone + Send + Sync + 'static> Extract for Option<Extension<T>> {
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
        Ok(Extension::extract(input).ok())
    }
}

/// A type of an argument in a function with `#[tool]` or its like. The macros check it, for the sake of its message.
///
/// `M` is inferred. With a single implementation the compiler would report what that lacks, instead of this message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument",
    label = "neither an argument nor an extractor that the macro recognizes",
    note = "the type of an argument derives `serde::Deserialize` and `bowline::schemars::JsonSchema`",
    note = "if it is an extractor under another name, put `#[tool(extractor)]` on the parameter"
)]
pub trait Argument<M> {}

impl<T: DeserializeOwned + JsonSchema> Argument<()> for T {}
impl<T: never::Never> Argument<fn(T)> for T {}

mod never {
    /// Not implemented by any type.
    #[allow(unnameable_types, reason = "it is not used elsewhere")]
    pub trait Never {}
}

fn missing<T>(what: &str) -> ExtractError {
    ExtractError::Server(format!("missing {what} of type `{}`", type_name::<T>()))
}

/// The parameters of a handler: a tuple of up to eight, each an [`Extract`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameters of a handler",
    note = "a handler has up to eight parameters"
)]
pub trait Parameters: Sized + Send + 'static {
    /// Extracts the parameters in order.
    ///
    /// # Errors
    ///
    /// The error of the first parameter that is missing or invalid.
    fn extract(input: &HandlerInput) -> Result<Self, ExtractError>;

    /// Declares the requirements of all parameters.
    fn declare(requirements: &mut HandlerRequirements);
}

macro_rules! parameters {
    ($($parameter:ident)*) => {
        impl<$($parameter: Extract),*> Parameters for ($($parameter,)*) {
            #[allow(unused_variables, reason = "a handler may have no parameters")]
            fn extract(input: &HandlerInput) -> Result<Self, ExtractError> {
                Ok(($($parameter::extract(input)?,)*))
            }

            #[allow(unused_variables, reason = "a handler may have no parameters")]
            fn declare(requirements: &mut HandlerRequirements) {
                $($parameter::declare(requirements);)*
            }
        }
    };
}

parameters!();
parameters!(A);
parameters!(A B);
parameters!(A B C);
parameters!(A B C D);
parameters!(A B C D E);
parameters!(A B C D E F);
parameters!(A B C D E F G);
parameters!(A B C D E F G H);

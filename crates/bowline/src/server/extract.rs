//! What a handler asks for: each of its parameters is found in what it is given.

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

/// A parameter of a handler: something that can be found in what the handler is given.
///
/// # Examples
///
/// A parameter of one's own, here the region that a layer found out:
///
/// ```
/// use bowline::server::{Extract, ExtractError, Given};
///
/// struct Region(String);
///
/// impl Extract for Region {
///     fn extract(given: &Given) -> Result<Self, ExtractError> {
///         let region = given.context().extensions().find::<String>();
///         region.cloned().map(Self).ok_or_else(|| ExtractError::server("nobody knows the region"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "not something a handler is given",
    note = "a handler takes `Args<T>`, `State<S>`, `Extension<T>`, `Context`, `Principal`, `Arc<Caller>`, \
            `Meta` or `Json`",
    note = "what the model passes is one `Args<T>`, where `T` derives `Deserialize` and `JsonSchema`"
)]
pub trait Extract: Sized + Send + 'static {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// If it is not there, or has the wrong shape.
    fn extract(given: &Given) -> Result<Self, ExtractError>;

    /// Says what must be there, once, when the handler becomes a tool.
    fn declare(needs: &mut Needs) {
        let _ = needs;
    }
}

/// What a handler is given: the arguments of one request, and its context.
#[derive(Clone, Debug)]
pub struct Given {
    arguments: Json,
    meta: Option<Json>,
    cx: Context,
    permits: Permits,
}

impl Given {
    /// `arguments` are an object.
    #[must_use]
    pub fn new(arguments: Json, cx: Context) -> Self {
        Self {
            arguments,
            meta: None,
            cx,
            permits: Permits::default(),
        }
    }

    /// Adds the `_meta` of the request.
    #[must_use]
    pub fn with_meta(mut self, meta: Option<Json>) -> Self {
        self.meta = meta;
        self
    }

    /// The arguments, an object.
    #[must_use]
    pub fn arguments(&self) -> &Json {
        &self.arguments
    }

    /// The `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_ref()
    }

    /// The context of the request.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    pub(super) fn hold(&mut self, permit: OwnedSemaphorePermit) {
        self.permits.0.push(Arc::new(permit));
    }

    /// The right to run, which whatever runs must keep until it ends.
    pub(super) fn permits(&self) -> Permits {
        self.permits.clone()
    }
}

/// The right to run: a place among those of the tool, and among those of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Permits(Vec<Arc<OwnedSemaphorePermit>>);

/// Why a parameter of a handler could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The caller's doing: the arguments have the wrong shape.
    #[error("{0}")]
    Arguments(String),
    /// The server's doing: something that it should have is not there.
    #[error("{0}")]
    Server(String),
}

impl ExtractError {
    /// The caller passed something wrong.
    #[must_use]
    pub fn arguments(what: impl Into<String>) -> Self {
        Self::Arguments(what.into())
    }

    /// The server lacks something.
    #[must_use]
    pub fn server(what: impl Into<String>) -> Self {
        Self::Server(what.into())
    }
}

/// What the parameters of a handler need, known before it is ever called.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    input_schema: Option<Json>,
    state: Vec<NeededState>,
    has_arguments_twice: bool,
}

#[derive(Clone, Debug)]
pub(super) struct NeededState {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
}

impl Needs {
    /// What these parameters need.
    #[must_use]
    pub fn of<E: Parameters>() -> Self {
        let mut needs = Self::default();
        E::declare(&mut needs);
        needs
    }

    /// Arguments in the shape of `T`.
    pub fn arguments<T: JsonSchema>(&mut self) {
        self.has_arguments_twice |= self.input_schema.is_some();
        self.input_schema = Some(schema::of_input::<T>());
    }

    /// State of the type `S`.
    pub fn state<S: 'static>(&mut self) {
        self.state.push(NeededState {
            id: TypeId::of::<S>(),
            name: type_name::<S>(),
        });
    }

    /// The schema of the arguments, if there are any.
    #[must_use]
    pub fn input_schema(&self) -> Option<&Json> {
        self.input_schema.as_ref()
    }

    pub(super) fn states(&self) -> &[NeededState] {
        &self.state
    }

    pub(super) fn has_arguments_twice(&self) -> bool {
        self.has_arguments_twice
    }
}

/// The arguments, decoded. The fields of `T` are the arguments; those that are `Option`s may be left out.
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
#[allow(clippy::exhaustive_structs, reason = "handlers take it apart")]
pub struct Args<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Extract for Args<T> {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        match given.arguments.decode() {
            Ok(arguments) => Ok(Self(arguments)),
            Err(error) => Err(ExtractError::Arguments(shortened(error).to_string())),
        }
    }

    fn declare(needs: &mut Needs) {
        needs.arguments::<T>();
    }
}

/// A copy of what [`Server::state`](super::Server::state) was given; behind an `Arc` unless it is cheap to clone.
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
#[allow(clippy::exhaustive_structs, reason = "handlers take it apart")]
pub struct State<S>(pub S);

impl<S: Clone + Send + Sync + 'static> Extract for State<S> {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        let state = given.cx.state::<S>();
        state
            .cloned()
            .map(Self)
            .ok_or_else(|| missing::<S>("state"))
    }

    fn declare(needs: &mut Needs) {
        needs.state::<S>();
    }
}

/// A copy of what the transport or a layer added to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "handlers take it apart")]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> Extract for Extension<T> {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        let extension = given.cx.extensions().find::<T>();
        extension
            .cloned()
            .map(Self)
            .ok_or_else(|| missing::<T>("extension"))
    }
}

impl Extract for Context {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        Ok(given.cx.clone())
    }
}

impl Extract for Principal {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        Ok(given.cx.principal().clone())
    }
}

impl Extract for Arc<Caller> {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        Ok(given.cx.caller().clone())
    }
}

/// The `_meta` of the request; empty if it has none.
impl Extract for Meta {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        given.meta.as_ref().map_or_else(
            || Ok(Self::default()),
            |meta| {
                meta.decode().map_err(|error| {
                    ExtractError::Arguments(format!("`_meta`: {}", shortened(error)))
                })
            },
        )
    }
}

/// The arguments as they came.
impl Extract for Json {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        Ok(given.arguments.clone())
    }
}

/// What may be there or not is asked for as an `Option`.
impl<T: Clone + Send + Sync + 'static> Extract for Option<Extension<T>> {
    fn extract(given: &Given) -> Result<Self, ExtractError> {
        Ok(Extension::extract(given).ok())
    }
}

fn missing<T>(what: &str) -> ExtractError {
    ExtractError::Server(format!("there is no {what} of type `{}`", type_name::<T>()))
}

/// The parameters of a handler: a tuple of up to eight, each an [`Extract`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the parameters of a handler",
    note = "a handler has up to eight parameters"
)]
pub trait Parameters: Sized + Send + 'static {
    /// Finds them, one after the other.
    ///
    /// # Errors
    ///
    /// If one of them is not there, or has the wrong shape.
    fn extract(given: &Given) -> Result<Self, ExtractError>;

    /// Says what must be there.
    fn declare(needs: &mut Needs);
}

macro_rules! parameters {
    ($($parameter:ident)*) => {
        impl<$($parameter: Extract),*> Parameters for ($($parameter,)*) {
            #[allow(unused_variables, reason = "a handler may have no parameters")]
            fn extract(given: &Given) -> Result<Self, ExtractError> {
                Ok(($($parameter::extract(given)?,)*))
            }

            #[allow(unused_variables, reason = "a handler may have no parameters")]
            fn declare(needs: &mut Needs) {
                $($parameter::declare(needs);)*
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

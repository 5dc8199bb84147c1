//! Functions that define a tool, prompt, resource or completer, among them those with `#[tool]` and its like.
//!
//! Such a function can be called, and passed to [`Server::tool`](super::Server::tool). Only its type can carry the
//! definition, and of a function's type only the return type can be chosen: it is a wrapper with the definition.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{self, Poll};

/// What [`Server::tool`](super::Server::tool) and its like accept in place of a `T`: a `T`, a function that returns
/// one, or a function with `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]`.
///
/// `M` is inferred.
///
/// # Examples
///
/// ```
/// use bowline::{Server, Tool};
///
/// fn noon() -> Tool {
///     Tool::new("noon", async || "noon").description("Returns the time.")
/// }
///
/// let server = Server::new("clock", "1.0.0").tool(noon);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not define a `{T}`",
    label = "expected a `{T}`, or a function with an attribute that makes it one",
    note = "put `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]` on the function",
    note = "without the attribute: `Tool::new(\"name\", function)`, and likewise for the others",
    note = "pass a function with an attribute itself, without calling it: `server.tool(add)`"
)]
pub trait IntoDefinition<T, M> {
    /// Returns the definition.
    fn into_definition(self) -> T;
}

impl<T, V: Into<T>> IntoDefinition<T, ()> for V {
    fn into_definition(self) -> T {
        self.into()
    }
}

impl<T, F: FnOnce() -> R, R: Into<T>> IntoDefinition<T, (R,)> for F {
    fn into_definition(self) -> T {
        self().into()
    }
}

/// A type that carries the definition of a tool, prompt, resource or completer. Implemented by the macros.
pub trait Definition {
    /// What is defined.
    type Item;

    /// Returns the definition.
    fn definition() -> Self::Item;
}

macro_rules! functions {
    ($($parameter:ident)*) => {
        impl<T, Function, Returned, $($parameter),*> IntoDefinition<T, fn($($parameter),*)> for Function
        where
            Function: Fn($($parameter),*) -> Returned,
            Returned: Definition<Item = T>,
        {
            fn into_definition(self) -> T {
                Returned::definition()
            }
        }
    };
}

functions!();
functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);
functions!(A B C D E);
functions!(A B C D E F);
functions!(A B C D E F G);
functions!(A B C D E F G H);
functions!(A B C D E F G H I);
functions!(A B C D E F G H I J);
functions!(A B C D E F G H I J K);
functions!(A B C D E F G H I J K L);
functions!(A B C D E F G H I J K L M);
functions!(A B C D E F G H I J K L M N);
functions!(A B C D E F G H I J K L M N O);
functions!(A B C D E F G H I J K L M N O P);

/// The future that an `async fn` with `#[tool]` or its like returns. Await it as usual.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use bowline::prelude::*;
///
/// #[tool]
/// async fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert_eq!(add(1, 2).await, 3);
/// # }
/// # }
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct FunctionCall<D, F> {
    future: Pin<Box<F>>,
    definition: PhantomData<fn() -> D>,
}

impl<D, F> FunctionCall<D, F> {
    /// Wraps the future of a function that `D` defines.
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            definition: PhantomData,
        }
    }
}

impl<D, F: Future> Future for FunctionCall<D, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<D: Definition, F> Definition for FunctionCall<D, F> {
    type Item = D::Item;

    fn definition() -> D::Item {
        D::definition()
    }
}

impl<D, F> fmt::Debug for FunctionCall<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionCall").finish_non_exhaustive()
    }
}

/// What a function with `#[tool]` or its like returns if it is not `async`: a smart pointer to the value.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use bowline::prelude::*;
///
/// #[tool]
/// fn shout(text: String) -> String {
///     text.to_uppercase()
/// }
///
/// assert_eq!(shout("hi".into()), "HI");
/// let text: String = shout("hi".into()).into_inner();
/// # }
/// ```
#[must_use = "`into_inner` returns the value"]
pub struct FunctionOutput<D, T> {
    value: T,
    definition: PhantomData<fn() -> D>,
}

impl<D, T> FunctionOutput<D, T> {
    /// Wraps the value that a function returned, which `D` defines.
    pub fn new(value: T) -> Self {
        Self {
            value,
            definition: PhantomData,
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<D: Definition, T> Definition for FunctionOutput<D, T> {
    type Item = D::Item;

    fn definition() -> D::Item {
        D::definition()
    }
}

impl<D, T> Deref for FunctionOutput<D, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<D, T> DerefMut for FunctionOutput<D, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<D, T: PartialEq<U>, U> PartialEq<U> for FunctionOutput<D, T> {
    fn eq(&self, other: &U) -> bool {
        self.value == *other
    }
}

impl<D, T: fmt::Debug> fmt::Debug for FunctionOutput<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<D, T: fmt::Display> fmt::Display for FunctionOutput<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

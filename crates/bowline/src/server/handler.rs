//! Functions as handlers.
//!
//! The traits say only that something is a function of so many parameters. What the parameters and the
//! result must be is asked separately, so that the compiler can point at the one that is wrong.

use std::future::Future;

/// An `async fn` of up to eight parameters; `E` is their tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not an `async fn` of up to eight parameters",
    note = "a synchronous function becomes a tool by `Tool::blocking`"
)]
pub trait Handler<E>: Send + Sync + 'static {
    /// What it returns in the end.
    type Output;
    /// What runs it.
    type Future: Future<Output = Self::Output>;

    /// Calls the function.
    fn run(&self, parameters: E) -> Self::Future;
}

/// A synchronous function of up to eight parameters; `E` is their tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a synchronous handler",
    label = "not a function of up to eight parameters",
    note = "an `async fn` becomes a tool by `Tool::new`"
)]
pub trait BlockingHandler<E>: Send + Sync + 'static {
    /// What it returns.
    type Output;

    /// Calls the function.
    fn run(&self, parameters: E) -> Self::Output;
}

macro_rules! functions {
    ($($parameter:ident)*) => {
        impl<Function, Running, $($parameter),*> Handler<($($parameter,)*)> for Function
        where
            Function: Fn($($parameter),*) -> Running + Send + Sync + 'static,
            Running: Future,
        {
            type Output = Running::Output;
            type Future = Running;

            #[allow(non_snake_case, reason = "a parameter is named like its type")]
            fn run(&self, ($($parameter,)*): ($($parameter,)*)) -> Running {
                self($($parameter),*)
            }
        }

        impl<Function, Returned, $($parameter),*> BlockingHandler<($($parameter,)*)> for Function
        where
            Function: Fn($($parameter),*) -> Returned + Send + Sync + 'static,
        {
            type Output = Returned;

            #[allow(non_snake_case, reason = "a parameter is named like its type")]
            fn run(&self, ($($parameter,)*): ($($parameter,)*)) -> Returned {
                self($($parameter),*)
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

//! The traits of functions that are handlers of tools, prompts and resources.
//!
//! They bound only the number of parameters. The bounds on parameters and result are in `Tool::new` and its like, so
//! that a compiler error names the parameter or result that is wrong, and not the whole function.

use std::future::Future;

/// An `async fn` of up to eight parameters; `E` is their tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not an `async fn` of up to eight parameters",
    note = "for a synchronous function use `Tool::blocking`"
)]
pub trait Handler<E>: Send + Sync + 'static {
    /// The output of the future.
    type Output;
    /// The future that the function returns.
    type Future: Future<Output = Self::Output>;

    /// Calls the function.
    fn run(&self, parameters: E) -> Self::Future;
}

/// A synchronous function of up to eight parameters; `E` is their tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a synchronous handler",
    label = "not a function of up to eight parameters",
    note = "for an `async fn` use `Tool::new`"
)]
pub trait BlockingHandler<E>: Send + Sync + 'static {
    /// The return value of the function.
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

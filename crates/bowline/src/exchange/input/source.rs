//! [`InputSource`]: how a handler gets input from its client, and keeps values and effects for later runs.

use std::time::Duration;

use bowline_core::input::RawInputRequest;
use bowline_types::Json;

use super::InputError;
use crate::exchange::BoxFuture;

/// How a handler gets input from its client, and keeps values and effects for later runs.
///
/// A [`Server`](crate::Server) sets the source of each request: server-to-client requests in the legacy era, rounds
/// (`input_required`) in the modern one. Work that outlives its request, such as a task of an extension, needs a source
/// of its own; see [`Context::with_input_source`](crate::Context::with_input_source).
///
/// The [`Context`](crate::Context) validates an input request before it calls the source (key, protocol version,
/// capabilities of the client), and the answer afterwards. It drops the future of a method when the request is
/// cancelled.
///
/// # Examples
///
/// A source without a client, which answers every input request with the same JSON and keeps nothing:
///
/// ```
/// use bowline::Json;
/// use bowline::exchange::{BoxFuture, InputError, InputRequestOptions, InputSource, RawInputRequest};
///
/// struct Fixed(Json);
///
/// impl InputSource for Fixed {
///     fn ask<'a>(
///         &'a self,
///         _key: &'a str,
///         _request: RawInputRequest,
///         _options: InputRequestOptions,
///     ) -> BoxFuture<'a, Result<Json, InputError>> {
///         Box::pin(async { Ok(self.0.clone()) })
///     }
///     fn store<'a>(&'a self, _key: &'a str, _value: Json) -> BoxFuture<'a, Result<(), InputError>> {
///         Box::pin(async { Ok(()) })
///     }
///     fn stored<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
///         Box::pin(async { Ok(None) })
///     }
///     fn begin_effect<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
///         Box::pin(async { Ok(None) })
///     }
///     fn finish_effect<'a>(&'a self, _key: &'a str, _output: Json) -> BoxFuture<'a, Result<(), InputError>> {
///         Box::pin(async { Ok(()) })
///     }
/// }
/// ```
pub trait InputSource: Send + Sync + 'static {
    /// Returns the client's answer to a valid input request.
    ///
    /// The key is unique within one run of a handler: a repeated use of `age` is `age#2`, then `age#3`. Dropping the
    /// future withdraws the input request.
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>>;

    /// Stores a value of [`Context::remember`](crate::Context::remember) for later runs, replacing an earlier one. The
    /// key is `value`.
    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>>;

    /// Returns the value that this or an earlier run stored.
    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>>;

    /// Returns the output of an effect that was performed before, or `None` if the handler must perform it now.
    ///
    /// The key starts with `once:` for [`Context::once`](crate::Context::once), or with `step:` for
    /// [`Context::step`](crate::Context::step), which numbers repeated names as [`ask`](Self::ask) does.
    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>>;

    /// Stores the output of an effect for which [`begin_effect`](Self::begin_effect) returned `None`. Not called if
    /// the effect failed or was dropped.
    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>>;

    /// Called if an input request is not passed to [`ask`](Self::ask) because a check fails, for example because the
    /// client lacks a capability, or if an effect is refused. Does nothing by default.
    ///
    /// The handler gets the same error. A source that delegates to another one passes it on: a request whose handler
    /// then fails with this error is answered with a JSON-RPC error in place of a tool result.
    fn rejected(&self, error: &InputError) {
        let _ = error;
    }
}

/// The options of one input request, for its [`InputSource`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct InputRequestOptions {
    /// The timeout, if the handler set one; see [`PendingInput::timeout`](super::PendingInput::timeout).
    pub timeout: Option<Duration>,
    /// Which answers are accepted.
    pub accepted: AcceptedAnswers,
}

/// Which answers of a client are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an answer was requested or it was not"
)]
pub enum AcceptedAnswers {
    /// Only answers to input requests that the client has received.
    #[default]
    Solicited,
    /// Also unsolicited answers; see [`PendingInput::accept_unsolicited`](super::PendingInput::accept_unsolicited).
    All,
}

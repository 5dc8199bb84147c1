//! The one seam: exchanges.
//!
//! An exchange is one request, the notifications that belong to it, and one answer. A [`Channel`] starts
//! exchanges and a [`Responder`] answers them; everything that carries a request from one to the other
//! stands between these two traits.
//!
//! ```text
//!   Client ──▶ Channel ─ ─ ─ a wire, HTTP, or nothing at all ─ ─ ─▶ Responder ◀── Server
//! ```

mod context;
pub(crate) use context::Alarm;
pub use context::{Context, Outlet};

mod deadline;

#[cfg(feature = "http-client")]
mod driven;
#[cfg(feature = "http-client")]
pub(crate) use driven::Driven;

mod extensions;
pub use extensions::Extensions;

mod ids;
#[cfg(feature = "http-client")]
pub(crate) use ids::Ids;

#[cfg_attr(
    not(all(feature = "http-client", feature = "http-server")),
    allow(
        dead_code,
        reason = "only an HTTP response has more to wait for than words, or can be held back"
    )
)]
mod said;
#[cfg(feature = "http-server")]
pub(crate) use said::Look;
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub(crate) use said::Said;

mod in_process;
pub use in_process::InProcess;

mod input;
pub use input::{Ask, AskError, Elicit, Elicited, NotAForm};
pub(crate) use input::{DEFAULT_ASK_TIMEOUT, Input, Once};

#[cfg(feature = "http-client")]
mod pause;
#[cfg(feature = "http-client")]
pub(crate) use pause::{Pause, Stopwatch, within};

mod progress;
pub use progress::Progress;

mod principal;
pub use principal::Principal;

mod run;
#[cfg(feature = "http-server")]
pub(crate) use run::Running;
pub(crate) use run::run;

mod trace_context;
pub use trace_context::TraceContext;
mod scopes;
pub use scopes::InsufficientScope;

mod way_back;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::Unsealed;
pub use bowline_core::era::{Caller, Dialect, Dialects, Request};
pub use bowline_core::json::Params;
pub use bowline_core::mux::CallOptions;
pub use bowline_core::{Notification, Outcome};
use bowline_types::{ClientCapabilities, Json, RequestId};

use crate::{Error, Result};

/// A future without a name.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to reach a peer.
///
/// # Examples
///
/// A channel in front of another one:
///
/// ```
///
/// use bowline::exchange::{CallOptions, Channel, Exchange, Request};
///
/// struct Noted<C>(C);
///
/// impl<C: Channel> Channel for Noted<C> {
///     fn open(&self, request: Request, options: CallOptions) -> Exchange {
///         println!("{} is asked", request.method);
///         self.0.open(request, options)
///     }
/// }
/// ```
pub trait Channel: Send + Sync + 'static {
    /// Starts one exchange. Dropping it cancels the request.
    fn open(&self, request: Request, options: CallOptions) -> Exchange;
}

/// Something that answers requests.
///
/// # Cancel safety
///
/// The future that `respond` returns is dropped when the caller gives up. It must be fine with that at
/// every `.await`.
///
/// # Examples
///
/// ```
/// use bowline::exchange::{BoxFuture, Caller, Outcome, Request, Responder};
/// use bowline::{Client, Context, Json};
///
/// /// Says yes to everything.
/// #[derive(Clone)]
/// struct Agreeable;
///
/// impl Responder for Agreeable {
///     fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
///         Box::pin(async { Ok(Json::empty_object()) })
///     }
///
///     fn roots_changed(&self, _: &Caller) {}
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let client = Client::to(&Agreeable).speaking("2026-07-28").await?;
/// client.raw("com.example/anything", ()).await?;
/// # Ok(()) }
/// ```
pub trait Responder: Send + Sync + 'static {
    /// Answers one request. The future is dropped if the peer gives up.
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome>;

    /// What the principal of a request with these params must be allowed, as far as that is known before it
    /// is answered. Legacy HTTP commits to a status before a handler runs, and asks this first.
    fn scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        let _ = (method, params);
        Vec::new()
    }

    /// Checks that it can be put to use, before the first request comes.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it was put together wrongly.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Hears that the roots of a client have changed: what it was told of them is out of date.
    ///
    /// It is called from the task that reads the wire and must not block. Clients say so in the legacy era
    /// only; since then they are asked whenever their roots are wanted.
    ///
    /// There is no default, so that a responder around another does not forget to pass it on.
    fn roots_changed(&self, caller: &Caller);

    /// Which of a server's questions it answers, if it is the host of a client.
    ///
    /// A client declares this, beside what it is told to declare.
    fn answers(&self) -> ClientCapabilities {
        ClientCapabilities::default()
    }
}

/// What becomes of a handler whose caller gave up.
///
/// # Examples
///
/// ```
/// use bowline::{CancelMode, Context, Tool};
///
/// async fn commit(cx: Context) -> &'static str {
///     // Runs to its end even if nobody waits for it any more.
///     if cx.is_cancelled() { "too late to stop" } else { "done" }
/// }
///
/// let tool = Tool::new("commit", commit).cancel_mode(CancelMode::Signal);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a handler is stopped or it is not")]
pub enum CancelMode {
    /// Its future is dropped at its next `.await`.
    #[default]
    Drop,
    /// It is told through [`Context::cancelled`] and runs on, unheard.
    Signal,
}

/// One request in progress: what is said while it runs, and its answer.
///
/// # Cancel safety
///
/// Dropping it cancels the request, in whatever way its wire has.
///
/// # Examples
///
/// ```
/// # use bowline::exchange::{CallOptions, Channel, Request};
/// # async fn example(channel: impl Channel, request: Request) -> bowline::Result<()> {
/// use bowline::exchange::Step;
///
/// let mut exchange = channel.open(request, CallOptions::default());
/// let answer = loop {
///     match exchange.step().await {
///         Step::Notification(said) => println!("{}", said.method),
///         Step::Answered(answer) => break answer?,
///     }
/// };
/// # Ok(()) }
/// ```
#[must_use = "dropping an exchange cancels its request"]
pub struct Exchange {
    ongoing: Box<dyn Ongoing>,
}

/// What an exchange yields next.
#[derive(Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an exchange says something, or it is over"
)]
pub enum Step {
    /// The peer says something that belongs to the request.
    Notification(Notification),
    /// The exchange is over.
    Answered(Result<Answer>),
}

/// What a request is answered with, in its inside form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a caller must handle every kind of answer"
)]
pub enum Answer {
    /// The result that the method names.
    Complete(Json),
    /// The server needs something first; an `InputRequiredResult`.
    InputRequired(Json),
    /// A result of a kind that an extension adds.
    Extension {
        /// Its `resultType`.
        result_type: String,
        /// The whole result.
        result: Json,
    },
}

/// What is behind an [`Exchange`]: a call over a wire, an HTTP response, a handler in process.
///
/// Dropping it before it was answered must cancel the request.
pub trait Ongoing: Send {
    /// The next step. Not polled again after [`Step::Answered`].
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step>;

    /// The id of the request, if it got as far as having one.
    fn request_id(&self) -> Option<&RequestId>;

    /// For how long its time has stood still, because a person decided something. A call of several rounds counts its
    /// time by this.
    fn paused(&self) -> Duration;

    /// Cancels the request and gives the peer a reason.
    fn cancel(self: Box<Self>, reason: String);
}

impl Exchange {
    /// An exchange that is carried on by `ongoing`.
    pub fn new(ongoing: impl Ongoing + 'static) -> Self {
        Self {
            ongoing: Box::new(ongoing),
        }
    }

    /// An exchange that failed before it began.
    pub fn failed(error: Error) -> Self {
        Self::new(Settled(Some(Err(error))))
    }

    /// An exchange that was answered before it began.
    pub fn answered(result: Json) -> Self {
        Self::new(Settled(Some(Ok(Answer::Complete(result)))))
    }

    /// The id of the request, if it got as far as having one.
    #[must_use]
    pub fn request_id(&self) -> Option<&RequestId> {
        self.ongoing.request_id()
    }

    /// For how long its time has stood still, because a person decided something.
    #[must_use]
    pub fn paused(&self) -> Duration {
        self.ongoing.paused()
    }

    /// The next step. Not to be called again after [`Step::Answered`].
    ///
    /// # Cancel safety
    ///
    /// Safe: a step is taken only when it is returned.
    pub async fn step(&mut self) -> Step {
        poll_fn(|cx| self.poll_step(cx)).await
    }

    /// Polls for the next step.
    pub fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        self.ongoing.poll_step(cx)
    }

    /// Waits for the answer and ignores everything else.
    ///
    /// # Errors
    ///
    /// As the exchange fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn answer(mut self) -> Result<Answer> {
        loop {
            if let Step::Answered(answer) = self.step().await {
                return answer;
            }
        }
    }

    /// Cancels the request and gives the peer a reason.
    pub fn cancel(self, reason: impl Into<String>) {
        self.ongoing.cancel(reason.into());
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("request_id", &self.request_id())
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Sorts what came back; a peer's error is [`Error::Peer`].
    pub(crate) fn from_unsealed(
        unsealed: Result<Unsealed, bowline_core::era::Violation>,
    ) -> Result<Self> {
        match unsealed {
            Ok(Unsealed::Complete(result)) => Ok(Self::Complete(result)),
            Ok(Unsealed::InputRequired(result)) => Ok(Self::InputRequired(result)),
            Ok(Unsealed::Extension {
                result_type,
                result,
            }) => Ok(Self::Extension {
                result_type,
                result,
            }),
            Ok(Unsealed::Failed(error)) => Err(Error::Peer(error)),
            Err(violation) => Err(Error::protocol(violation.to_string())),
        }
    }
}

/// An exchange that was over before it began.
struct Settled(Option<Result<Answer>>);

impl Ongoing for Settled {
    fn poll_step(&mut self, _: &mut task::Context<'_>) -> Poll<Step> {
        Poll::Ready(Step::Answered(self.0.take().unwrap_or(Err(Error::Closed))))
    }

    fn request_id(&self) -> Option<&RequestId> {
        None
    }

    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    fn cancel(self: Box<Self>, _: String) {}
}

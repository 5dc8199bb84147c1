//! A builder for one request of a client.
//!
//! Every request method of [`Client`] returns a [`RequestBuilder`]. The setters that all requests share are here;
//! those of one kind of request are beside that kind. The type parameter is the kind of request, which decides the
//! type of the result.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::json::Object;
use bowline_types::{
    Json, LoggingLevel, Meta, ProgressNotificationParams, RequestId, check_meta_key,
};

use super::cache_policy::CacheMode;
use super::call::OnProgress;
use super::deferred::Deferred;
use super::extension_call::CompleteFn;
use super::{Call, Client};
use crate::exchange::{CallOptions, Exchange, TraceContext};
use crate::{Error, Result};

/// A builder for a request, and the future of its result. Await it to send the request and receive the result.
///
/// As a future it can be passed to `tokio::spawn`, `tokio::join!`, `select!`, `timeout` and the like. The request is
/// sent when it is first polled; its options can be set until then, and setting one later panics.
///
/// # Cancel safety
///
/// The request is sent when the builder is first polled or [started](Self::start). After that, dropping the builder
/// cancels the request.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// let reply = client
///     .call_tool("index", serde_json::json!({"path": "src"}))
///     .idle_timeout(Duration::from_secs(5))
///     .on_progress(|report| println!("{} so far", report.progress))
///     .await?;
///
/// let (tools, prompts) = tokio::join!(client.list_tools(), client.list_prompts());
/// let in_background = tokio::spawn(client.call_tool("rebuild", ()));
/// # Ok(()) }
/// ```
#[must_use = "a request is not sent until it is awaited or started"]
pub struct RequestBuilder<K: RequestKind> {
    state: Deferred<(RequestOptions, K), K::Running>,
}

/// A kind of request, which decides the result of its [`RequestBuilder`]. Sealed.
pub trait RequestKind: sealed::Sealed + Sized + Unpin {
    /// The result of the request.
    type Output;
    /// The future of the result.
    #[doc(hidden)]
    type Running: Future<Output = Result<Self::Output>> + Send + Unpin;

    /// Sends the request.
    #[doc(hidden)]
    fn run(self, options: RequestOptions) -> Self::Running;
}

/// The method, the params and the settings of a request, whatever its kind.
#[allow(
    unnameable_types,
    missing_debug_implementations,
    reason = "other crates cannot name it"
)]
pub struct RequestOptions {
    pub(super) client: Client,
    pub(super) method: Cow<'static, str>,
    /// An encoding error is reported when the request is sent.
    pub(super) params: Result<Json>,
    pub(super) call_options: CallOptions,
    pub(super) meta: Option<Meta>,
    trace: Option<TraceContext>,
    pub(super) on_progress: Option<OnProgress>,
    log_level: Option<LoggingLevel>,
    pub(super) cache_mode: CacheMode,
    is_checked: bool,
    manual_input: bool,
    manual_extension: bool,
    /// Obtains the result instead of the request, which is then not sent.
    complete: Option<CompleteFn>,
    /// How much of the total timeout the earlier pages of a list have taken.
    pub(super) time_spent: Duration,
}

impl<K: RequestKind> RequestBuilder<K> {
    /// A request for `method` with the client's default settings.
    pub(super) fn new(
        client: &Client,
        method: impl Into<Cow<'static, str>>,
        params: Result<Json>,
        kind: K,
    ) -> Self {
        let call_options = CallOptions {
            idle_timeout: Some(client.inner.config.idle_timeout),
            ..CallOptions::default()
        };
        let options = RequestOptions {
            client: client.clone(),
            method: method.into(),
            params,
            call_options,
            meta: None,
            trace: None,
            on_progress: None,
            log_level: None,
            cache_mode: CacheMode::Default,
            is_checked: client.inner.config.checks_capabilities,
            manual_input: false,
            manual_extension: false,
            complete: None,
            time_spent: Duration::ZERO,
        };
        Self::from_parts(options, kind)
    }

    pub(super) fn from_parts(options: RequestOptions, kind: K) -> Self {
        Self {
            state: Deferred::Draft((options, kind)),
        }
    }

    pub(super) fn into_parts(self) -> (RequestOptions, K) {
        self.state.into_draft()
    }

    pub(super) fn parts(&mut self) -> &mut (RequestOptions, K) {
        self.state.draft()
    }

    fn options(&mut self) -> &mut RequestOptions {
        &mut self.parts().0
    }

    pub(super) fn completed_by(mut self, complete: CompleteFn) -> Self {
        self.options().complete = Some(complete);
        self
    }

    /// Sets the request id, instead of a generated one.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let call = client.call_tool("slow", ()).id("my-own").start();
    /// assert_eq!(call.id(), Some(&"my-own".into()));
    /// # Ok(()) }
    /// ```
    pub fn id(mut self, id: impl Into<RequestId>) -> Self {
        self.options().call_options.id = Some(id.into());
        self
    }

    /// Sets the idle timeout, which progress notifications restart. 60 s by default.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use std::time::Duration;
    ///
    /// let index = client.call_tool("index", ()).idle_timeout(Duration::from_secs(5)).timeout(Duration::from_secs(60));
    /// index.on_progress(|report| println!("{}", report.progress)).await?;
    /// # Ok(()) }
    /// ```
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.options().call_options.idle_timeout = Some(timeout);
        self
    }

    /// Sets the timeout of the whole call: with all rounds of input, all pages of a list, and reconnects. Progress does
    /// not extend it. It is paused while the [host](super::Host) answers the server, while the user signs in, and while
    /// the items of a [stream](Self::stream) are processed. By default a call has no such timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options().call_options.timeout = Some(timeout);
        self
    }

    /// Requests progress (a `progressToken`), and calls `on_progress` with each notification.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let (progress, received) = std::sync::mpsc::channel();
    /// client.call_tool("index", ()).on_progress(move |report| drop(progress.send(report.progress))).await?;
    /// # Ok(()) }
    /// ```
    pub fn on_progress(
        mut self,
        on_progress: impl FnMut(ProgressNotificationParams) + Send + 'static,
    ) -> Self {
        self.options().on_progress = Some(Box::new(on_progress));
        self
    }

    /// Sets `_meta`. The request fails if a key is [invalid](bowline_types::check_meta_key).
    pub fn meta(mut self, meta: Meta) -> Self {
        self.options().meta = Some(meta);
        self
    }

    /// Sets the trace context; inside a handler, use that of [its own request](crate::Context::trace). `None` uses
    /// [`ClientBuilder::trace`](super::ClientBuilder::trace).
    ///
    /// Sent as `traceparent` and `tracestate` in `_meta`, unless `_meta` contains them already.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::{Client, Context};
    /// # async fn example(other: Client, cx: Context) -> bowline::Result<()> {
    /// let reply = other.call_tool("forecast", ()).trace(cx.trace()).await?;
    /// # Ok(()) }
    /// ```
    pub fn trace(mut self, trace: impl Into<Option<TraceContext>>) -> Self {
        self.options().trace = trace.into();
        self
    }

    /// Requests log messages of at least this severity while the request runs.
    ///
    /// In the legacy era the level belongs to the connection: use [`Client::set_log_level`].
    pub fn log_level(mut self, level: LoggingLevel) -> Self {
        self.options().log_level = Some(level);
        self
    }

    /// Sets whether the request is cancelled on the server if the call is dropped or times out. `true` by default.
    /// [`Call::cancel`] cancels it either way.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let mut call = client.call_tool("rebuild", ()).cancel_on_drop(false).start();
    /// tokio::select! {
    ///     reply = &mut call => println!("{}", reply?.text()),
    ///     () = user_went_home() => drop(call), // the server finishes the work
    /// }
    /// # async fn user_went_home() {}
    /// # Ok(()) }
    /// ```
    pub fn cancel_on_drop(mut self, cancel: bool) -> Self {
        self.options().call_options.cancel_on_drop = cancel;
        self
    }

    /// Sends the request even if a fresh result is cached, and caches the new one.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let tools = client.list_tools().refresh().await?;
    /// # Ok(()) }
    /// ```
    pub fn refresh(mut self) -> Self {
        self.options().cache_mode = CacheMode::Reload;
        self
    }

    /// Sends the request without reading or writing the cache.
    pub fn bypass_cache(mut self) -> Self {
        self.options().cache_mode = CacheMode::NoStore;
        self
    }

    /// Sends the request even if the server did not declare the capability for it.
    pub fn skip_capability_check(mut self) -> Self {
        self.options().is_checked = false;
        self
    }
}

impl<K: RequestKind> Future for RequestBuilder<K> {
    type Output = Result<K::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.state.poll(cx, |(options, kind)| kind.run(options))
    }
}

impl<K: SingleRequest> RequestBuilder<K> {
    /// Returns an [input-required](super::Reply::input_required) result to the caller, instead of answering it
    /// through the host and sending the request again.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.call_tool("book", ()).manual_input().await?;
    /// if let Some(needed) = reply.input_required() {
    ///     println!("the server needs {:?}", needed.input_requests);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn manual_input(mut self) -> Self {
        self.options().manual_input = true;
        self
    }

    /// Returns the result of an extension to the caller, with its [`resultType`](super::Reply::result_type), instead of
    /// letting the [extension](super::ClientExtension) complete it. The server decides whether it answers with such a
    /// result or directly.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.call_tool("rebuild", ()).manual_extension().await?;
    /// match reply.result_type() {
    ///     Some("ticket") => println!("answered with a ticket: {}", reply.json()),
    ///     _ => println!("answered directly: {}", reply.text()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn manual_extension(mut self) -> Self {
        self.options().manual_extension = true;
        self
    }

    /// Starts the request and returns the call, a future.
    ///
    /// Over a duplex wire the request is queued now. In process, and over HTTP in the modern era, no task is spawned:
    /// the request is sent, and makes progress, while the call is polled.
    pub fn start(self) -> Call {
        self.into_parts().0.start()
    }
}

/// Kinds of requests that are one request each, so that [`RequestBuilder::start`] can return a [`Call`]. Sealed.
pub trait SingleRequest: RequestKind {}

pub(super) mod sealed {
    /// Prevents implementations of [`RequestKind`](super::RequestKind) in other crates.
    #[allow(unnameable_types, reason = "that is what seals a trait")]
    pub trait Sealed {}
}

impl RequestOptions {
    /// Returns the same settings for another page. The request id and the progress callback belong to one request and
    /// are left out.
    pub(super) fn for_another_page(&self, params: Result<Json>) -> Self {
        Self {
            client: self.client.clone(),
            method: self.method.clone(),
            params,
            call_options: CallOptions {
                id: None,
                ..self.call_options.clone()
            },
            meta: self.meta.clone(),
            trace: self.trace.clone(),
            on_progress: None,
            log_level: self.log_level,
            cache_mode: self.cache_mode,
            is_checked: self.is_checked,
            manual_input: self.manual_input,
            manual_extension: self.manual_extension,
            complete: None,
            time_spent: self.time_spent,
        }
    }

    /// Sends the request.
    pub(super) fn start(self) -> Call {
        let Self {
            client,
            method,
            params,
            call_options,
            meta,
            trace,
            on_progress,
            log_level,
            cache_mode,
            is_checked,
            manual_input,
            manual_extension,
            complete,
            time_spent,
        } = self;
        let params = params
            .and_then(|params| add_meta(params, meta))
            .and_then(|params| {
                let trace = trace.or_else(|| client.trace());
                add_trace(params, trace.as_ref())
            });
        let (params, answered) = match params {
            Ok(params) if is_checked => (params, client.answer_unsupported(&method)),
            Ok(params) => (params, None),
            Err(error) => (Json::empty_object(), Some(Exchange::failed(error))),
        };
        let mut request = Request::new(method, params, with_log_level(client.caller(), log_level));
        if on_progress.is_some() {
            request.progress_token = Some(client.mint_token());
        }
        let mut call = Call::new(client, request, call_options, on_progress, time_spent);
        call.manual_input = manual_input;
        call.manual_extension = manual_extension;
        match complete {
            Some(complete) if answered.is_none() => call.start_completing(complete),
            _ => call.start(answered, cache_mode),
        }
        call
    }
}

pub(super) fn with_log_level(caller: Arc<Caller>, log_level: Option<LoggingLevel>) -> Arc<Caller> {
    if log_level.is_none() || log_level == caller.log_level {
        return caller;
    }
    let mut caller = Caller::clone(&caller);
    caller.log_level = log_level;
    Arc::new(caller)
}

fn add_meta(params: Json, meta: Option<Meta>) -> Result<Json> {
    let Some(meta) = meta else { return Ok(params) };
    for (key, _) in meta.iter() {
        check_meta_key(key).map_err(|error| invalid_meta(format!("key `{key}`: {error}")))?;
    }
    let mut object = Object::read(&params).map_err(invalid_meta)?;
    object.set("_meta", Json::encode(&meta).map_err(invalid_meta)?);
    Ok(object.to_json())
}

fn add_trace(params: Json, trace: Option<&TraceContext>) -> Result<Json> {
    let Some(trace) = trace else {
        return Ok(params);
    };
    let mut object = Object::read(&params).map_err(invalid_meta)?;
    let mut meta: Meta = match object.member("_meta") {
        Some(meta) => meta.decode().map_err(invalid_meta)?,
        None => Meta::default(),
    };
    // The caller's own `traceparent` takes precedence.
    if meta.traceparent().is_ok_and(|own| own.is_some()) {
        return Ok(params);
    }
    trace.write(&mut meta);
    object.set("_meta", Json::encode(&meta).map_err(invalid_meta)?);
    Ok(object.to_json())
}

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn invalid_meta(error: impl std::fmt::Display) -> Error {
    Error::misuse(format!("invalid `_meta`: {error}"))
}

impl<K: RequestKind> std::fmt::Debug for RequestBuilder<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let method = match &self.state {
            Deferred::Draft((options, _)) => Some(&options.method),
            Deferred::Running(_) | Deferred::Starting => None,
        };
        f.debug_struct("RequestBuilder")
            .field("method", &method)
            .finish_non_exhaustive()
    }
}

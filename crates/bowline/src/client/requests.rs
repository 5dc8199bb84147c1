//! The client methods that send one request: `tools/call`, `resources/read`, `prompts/get` and others.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bowline_types::{
    CallToolRequest, CallToolRequestParams, CompleteArgument, CompleteContext, CompleteReference,
    CompleteRequest, CompleteRequestParams, Completion, DiscoverRequest, GetPromptRequest, Json,
    LoggingLevel, Method, PingRequest, ReadResourceRequest, ReadResourceRequestParams,
    SetLevelRequest, SetLevelRequestParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::request_builder::sealed::Sealed;
use super::request_builder::{RequestKind, RequestOptions, SingleRequest};
use super::{Call, Client, Reply, RequestBuilder, encode_object};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Marks a `tools/call` request; awaiting the [`RequestBuilder`] returns a [`Reply`].
#[derive(Debug)]
#[non_exhaustive]
pub struct CallTool;

/// Marks a request with untyped params and result; awaiting the [`RequestBuilder`] returns a [`Reply`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Untyped;

/// Marks a request of method `M`; awaiting the [`RequestBuilder`] returns `M::Result`.
#[derive(Debug)]
pub struct Typed<M>(PhantomData<fn() -> M>);

impl<M> Typed<M> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

/// Marks a `completion/complete` request; awaiting the [`RequestBuilder`] returns a [`Completion`].
#[derive(Debug)]
pub struct Complete {
    params: CompleteRequestParams,
}

/// Marks a `ping`; awaiting the [`RequestBuilder`] returns `()`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ping;

/// Marks a `logging/setLevel` request; awaiting the [`RequestBuilder`] returns `()`.
#[derive(Debug)]
pub struct SetLogLevel {
    level: LoggingLevel,
}

impl Client {
    /// Calls a tool (`tools/call`). `arguments` must serialize to a JSON object; `()` means no arguments.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client
    ///     .call_tool("add", serde_json::json!({"a": 1, "b": 2}))
    ///     .idle_timeout(Duration::from_secs(5))
    ///     .await?;
    /// let sum: i64 = reply.structured()?;
    /// # Ok(()) }
    /// ```
    pub fn call_tool(
        &self,
        name: impl Into<String>,
        arguments: impl Serialize,
    ) -> RequestBuilder<CallTool> {
        let params = encode_object(&arguments).and_then(|arguments| {
            let params = CallToolRequestParams::new(name).with_arguments(arguments);
            encode_object(&params)
        });
        RequestBuilder::new(self, CallToolRequest::NAME, params, CallTool)
    }

    /// Reads a resource (`resources/read`).
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let notes = client.read_resource("file:///notes.txt").await?;
    /// println!("{} parts", notes.contents.len());
    /// # Ok(()) }
    /// ```
    pub fn read_resource(
        &self,
        uri: impl Into<String>,
    ) -> RequestBuilder<Typed<ReadResourceRequest>> {
        self.request(&ReadResourceRequestParams::new(uri))
    }

    /// Gets a prompt (`prompts/get`). `arguments` must serialize to a JSON object of strings; `()` means no arguments.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let prompt = client.get_prompt("review", serde_json::json!({"language": "Rust"})).await?;
    /// println!("{} messages", prompt.messages.len());
    /// # Ok(()) }
    /// ```
    pub fn get_prompt(
        &self,
        name: impl Into<String>,
        arguments: impl Serialize,
    ) -> RequestBuilder<Typed<GetPromptRequest>> {
        let params = encode_object(&arguments).and_then(|arguments| {
            let texts: BTreeMap<String, String> = arguments
                .decode()
                .map_err(|_| Error::misuse("prompt arguments must be strings"))?;
            let mut params = bowline_types::GetPromptRequestParams::new(name);
            params.arguments = (!texts.is_empty()).then_some(texts);
            encode_object(&params)
        });
        RequestBuilder::new(self, GetPromptRequest::NAME, params, Typed::new())
    }

    /// Requests completions for an argument of a prompt or resource template (`completion/complete`).
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::types::PromptReference;
    ///
    /// let cities = client
    ///     .complete(PromptReference::new("weather"), "city", "Lond")
    ///     .context_argument("country", "UK")
    ///     .await?;
    /// println!("{:?}", cities.values);
    /// # Ok(()) }
    /// ```
    pub fn complete(
        &self,
        reference: impl Into<CompleteReference>,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> RequestBuilder<Complete> {
        let argument = CompleteArgument::new(argument, value);
        let params = CompleteRequestParams::new(reference, argument);
        let encoded = encode_object(&params);
        RequestBuilder::new(self, CompleteRequest::NAME, encoded, Complete { params })
    }

    /// Checks that the server responds (`ping`).
    ///
    /// The modern era has no `ping`; there it sends `server/discover`, which every server must answer.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// client.ping().idle_timeout(std::time::Duration::from_secs(1)).await?;
    /// # Ok(()) }
    /// ```
    pub fn ping(&self) -> RequestBuilder<Ping> {
        let has_ping = self.dialect().knows_request(PingRequest::NAME);
        let method = if has_ping {
            PingRequest::NAME
        } else {
            DiscoverRequest::NAME
        };
        RequestBuilder::new(self, method, Ok(Json::empty_object()), Ping).bypass_cache()
    }

    /// Sets the minimum severity of log messages from the server (`logging/setLevel`).
    ///
    /// In the modern era no message is sent: the level is part of each later request.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::types::LoggingLevel;
    ///
    /// client.set_log_level(LoggingLevel::Warning).await?;
    /// # Ok(()) }
    /// ```
    pub fn set_log_level(&self, level: LoggingLevel) -> RequestBuilder<SetLogLevel> {
        let params = encode_object(&SetLevelRequestParams::new(level));
        let kind = SetLogLevel { level };
        RequestBuilder::new(self, SetLevelRequest::NAME, params, kind)
    }

    /// Sends the log level of `ClientBuilder::log_level`, if the protocol version has `logging/setLevel`.
    pub(super) async fn send_log_level(&self) {
        if let Some(level) = self.caller().log_level
            && let Err(error) = self.set_log_level(level).await
        {
            tracing::debug!(%error, "failed to set the log level of the server");
        }
    }

    /// Sends a request of method `M`, with typed params and result.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::types::{CallToolRequest, CallToolRequestParams};
    ///
    /// let result = client.request::<CallToolRequest>(&CallToolRequestParams::new("now")).await?;
    /// println!("{} blocks", result.content.len());
    /// # Ok(()) }
    /// ```
    pub fn request<M: Method>(&self, params: &M::Params) -> RequestBuilder<Typed<M>> {
        RequestBuilder::new(self, M::NAME, encode_object(params), Typed::new())
    }

    /// Sends a request with untyped params and result. The server's capabilities are not checked.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.request_raw("com.example/rebuild", serde_json::json!({"target": "docs"})).await?;
    /// println!("{}", reply.json());
    /// # Ok(()) }
    /// ```
    pub fn request_raw(
        &self,
        method: impl Into<String>,
        params: impl Serialize,
    ) -> RequestBuilder<Untyped> {
        RequestBuilder::new(self, method.into(), encode_object(&params), Untyped)
            .skip_capability_check()
    }
}

impl RequestBuilder<Complete> {
    /// Adds the value of another argument that is already resolved (`context.arguments`).
    ///
    /// The member exists from 2025-06-18 on. Before, it is not sent, and the completer gets no other arguments.
    pub fn context_argument(
        mut self,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        let (options, Complete { params }) = self.parts();
        let context = params.context.get_or_insert_with(CompleteContext::default);
        let arguments = context.arguments.get_or_insert_default();
        arguments.insert(argument.into(), value.into());
        options.params = encode_object(params);
        self
    }
}

impl Sealed for CallTool {}
impl Sealed for Untyped {}
impl<M> Sealed for Typed<M> {}
impl Sealed for Complete {}
impl Sealed for Ping {}
impl Sealed for SetLogLevel {}

impl SingleRequest for CallTool {}
impl SingleRequest for Untyped {}
impl<M: Method> SingleRequest for Typed<M> {}
impl SingleRequest for Complete {}
impl SingleRequest for Ping {}

impl RequestKind for CallTool {
    type Output = Reply;
    type Running = Call;

    fn run(self, options: RequestOptions) -> Call {
        options.start()
    }
}

impl RequestKind for Untyped {
    type Output = Reply;
    type Running = Call;

    fn run(self, options: RequestOptions) -> Call {
        options.start()
    }
}

impl<M: Method> RequestKind for Typed<M> {
    type Output = M::Result;
    type Running = BoxFuture<'static, Result<M::Result>>;

    fn run(self, options: RequestOptions) -> Self::Running {
        decoded(options.start())
    }
}

impl RequestKind for Complete {
    type Output = Completion;
    type Running = BoxFuture<'static, Result<Completion>>;

    fn run(self, options: RequestOptions) -> Self::Running {
        let result = decoded::<bowline_types::CompleteResult>(options.start());
        Box::pin(async { Ok(result.await?.completion) })
    }
}

impl RequestKind for Ping {
    type Output = ();
    type Running = BoxFuture<'static, Result<()>>;

    fn run(self, options: RequestOptions) -> Self::Running {
        let call = options.start();
        Box::pin(async { call.await.map(|_| ()) })
    }
}

impl RequestKind for SetLogLevel {
    type Output = ();
    type Running = BoxFuture<'static, Result<()>>;

    fn run(self, options: RequestOptions) -> Self::Running {
        let client = options.client.clone();
        let is_sent = client.dialect().knows_request(&options.method);
        let call = is_sent.then(|| options.start());
        Box::pin(async move {
            if let Some(call) = call {
                call.await?;
            }
            client.set_default_log_level(self.level);
            Ok(())
        })
    }
}

fn decoded<T: DeserializeOwned>(call: Call) -> BoxFuture<'static, Result<T>> {
    Box::pin(async { call.await?.decode() })
}

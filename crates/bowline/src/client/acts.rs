//! The acts that are one request: calling a tool, reading a resource, and the rest of the protocol.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;

use bowline_types::{
    CallToolRequest, CallToolRequestParams, CompleteArgument, CompleteContext, CompleteReference,
    CompleteRequest, CompleteRequestParams, Completion, DiscoverRequest, GetPromptRequest, Json,
    LoggingLevel, Method, PingRequest, ReadResourceRequest, ReadResourceRequestParams,
    SetLevelRequest, SetLevelRequestParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::draft::sealed::Sealed;
use super::{Call, Client, Draft, Reply, encode_object};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Calling a tool; gives a [`Reply`].
#[derive(Debug)]
#[non_exhaustive]
pub struct CallTool;

/// A request that no type describes; gives a [`Reply`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Raw;

/// A request of a known method; gives that method's result.
#[derive(Debug)]
pub struct Typed<M>(PhantomData<fn() -> M>);

impl<M> Typed<M> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

/// Completing an argument; gives a [`Completion`].
#[derive(Debug)]
pub struct Complete {
    params: CompleteRequestParams,
}

/// Asking whether the server is there; gives nothing.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ping;

/// Choosing how severe log messages must be to be sent; gives nothing.
#[derive(Debug)]
pub struct SetLogLevel {
    level: LoggingLevel,
}

impl Client {
    /// Calls a tool. `arguments` become a JSON object; `()` means none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client
    ///     .call_tool("add", serde_json::json!({"a": 1, "b": 2}))
    ///     .timeout(Duration::from_secs(5))
    ///     .await?;
    /// let sum: i64 = reply.structured()?;
    /// # Ok(()) }
    /// ```
    pub fn call_tool(&self, name: impl Into<String>, arguments: impl Serialize) -> Draft<CallTool> {
        let params = encode_object(&arguments).and_then(|arguments| {
            let params = CallToolRequestParams::new(name).with_arguments(arguments);
            encode_object(&params)
        });
        Draft::new(self, CallToolRequest::NAME, params, CallTool)
    }

    /// Reads a resource.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let notes = client.read_resource("file:///notes.txt").await?;
    /// println!("{} parts", notes.contents.len());
    /// # Ok(()) }
    /// ```
    pub fn read_resource(&self, uri: impl Into<String>) -> Draft<Typed<ReadResourceRequest>> {
        self.request(&ReadResourceRequestParams::new(uri))
    }

    /// Gets a prompt. `arguments` become a JSON object of texts; `()` means none.
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
    ) -> Draft<Typed<GetPromptRequest>> {
        let params = encode_object(&arguments).and_then(|arguments| {
            let texts: BTreeMap<String, String> = arguments
                .decode()
                .map_err(|_| Error::misuse("the arguments of a prompt are texts"))?;
            let mut params = bowline_types::GetPromptRequestParams::new(name);
            params.arguments = (!texts.is_empty()).then_some(texts);
            encode_object(&params)
        });
        Draft::new(self, GetPromptRequest::NAME, params, Typed::new())
    }

    /// Asks how an argument of a prompt or a resource template could go on.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::types::PromptReference;
    ///
    /// let cities = client
    ///     .complete(PromptReference::new("weather"), "city", "Lond")
    ///     .given("country", "UK")
    ///     .await?;
    /// println!("{:?}", cities.values);
    /// # Ok(()) }
    /// ```
    pub fn complete(
        &self,
        reference: impl Into<CompleteReference>,
        argument: impl Into<String>,
        value: impl Into<String>,
    ) -> Draft<Complete> {
        let argument = CompleteArgument::new(argument, value);
        let params = CompleteRequestParams::new(reference, argument);
        let encoded = encode_object(&params);
        Draft::new(self, CompleteRequest::NAME, encoded, Complete { params })
    }

    /// Asks whether the server is there.
    ///
    /// The modern era has no `ping`; there `server/discover`, which every server answers, takes its place.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// client.ping().timeout(std::time::Duration::from_secs(1)).await?;
    /// # Ok(()) }
    /// ```
    pub fn ping(&self) -> Draft<Ping> {
        let pings = self.dialect().knows_request(PingRequest::NAME);
        let method = if pings {
            PingRequest::NAME
        } else {
            DiscoverRequest::NAME
        };
        Draft::new(self, method, Ok(Json::empty_object()), Ping).uncached()
    }

    /// Asks for log messages of at least this severity from now on.
    ///
    /// In the modern era nothing is sent: each later request says it.
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
    pub fn set_log_level(&self, level: LoggingLevel) -> Draft<SetLogLevel> {
        let params = encode_object(&SetLevelRequestParams::new(level));
        let act = SetLogLevel { level };
        Draft::new(self, SetLevelRequest::NAME, params, act)
    }

    /// Tells a server that remembers it which level was chosen while connecting.
    pub(super) async fn ask_for_logs(&self) {
        if let Some(level) = self.caller().log_level
            && let Err(error) = self.set_log_level(level).await
        {
            tracing::debug!(%error, "the server does not let its log level be set");
        }
    }

    /// Sends a request of any kind; the method names the types of its params and its result.
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
    pub fn request<M: Method>(&self, params: &M::Params) -> Draft<Typed<M>> {
        Draft::new(self, M::NAME, encode_object(params), Typed::new())
    }

    /// Sends a request that no type describes. Whether the server offers it is not checked.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.raw("com.example/rebuild", serde_json::json!({"target": "docs"})).await?;
    /// println!("{}", reply.json());
    /// # Ok(()) }
    /// ```
    pub fn raw(&self, method: impl Into<String>, params: impl Serialize) -> Draft<Raw> {
        Draft::new(self, method.into(), encode_object(&params), Raw).unchecked()
    }
}

impl Draft<Complete> {
    /// Tells the value of another argument, which is already decided.
    pub fn given(mut self, argument: impl Into<String>, value: impl Into<String>) -> Self {
        let params = &mut self.act.params;
        let context = params.context.get_or_insert_with(CompleteContext::default);
        let decided = context.arguments.get_or_insert_default();
        decided.insert(argument.into(), value.into());
        self.terms.params = encode_object(params);
        self
    }
}

impl Sealed for CallTool {}
impl Sealed for Raw {}
impl<M> Sealed for Typed<M> {}
impl Sealed for Complete {}
impl Sealed for Ping {}

impl IntoFuture for Draft<CallTool> {
    type Output = Result<Reply>;
    type IntoFuture = Call;

    fn into_future(self) -> Call {
        self.start()
    }
}

impl IntoFuture for Draft<Raw> {
    type Output = Result<Reply>;
    type IntoFuture = Call;

    fn into_future(self) -> Call {
        self.start()
    }
}

impl<M: Method> IntoFuture for Draft<Typed<M>> {
    type Output = Result<M::Result>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        decoded(self.start())
    }
}

impl IntoFuture for Draft<Complete> {
    type Output = Result<Completion>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let result = decoded::<bowline_types::CompleteResult>(self.start());
        Box::pin(async { Ok(result.await?.completion) })
    }
}

impl IntoFuture for Draft<Ping> {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let call = self.start();
        Box::pin(async { call.await.map(|_| ()) })
    }
}

impl IntoFuture for Draft<SetLogLevel> {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let (client, level) = (self.terms.client.clone(), self.act.level);
        let is_sent = client.dialect().knows_request(&self.terms.method);
        let call = is_sent.then(|| self.terms.start());
        Box::pin(async move {
            if let Some(call) = call {
                call.await?;
            }
            client.log_from(level);
            Ok(())
        })
    }
}

fn decoded<T: DeserializeOwned>(call: Call) -> BoxFuture<'static, Result<T>> {
    Box::pin(async { call.await?.decode() })
}

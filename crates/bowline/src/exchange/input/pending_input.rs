//! `Context::elicit`, `sample` and `roots`, and the futures that they return.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::input::{InputKind, RawInputRequest, check_form, check_tool_uses};
use bowline_types::{
    CreateMessageRequestParams, CreateMessageResult, ElicitAction, ElicitRequestFormParams,
    ElicitRequestParams, ElicitRequestUrlParams, ElicitResult, ElicitSchema, Json, ListRootsResult,
    Root,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::form::{Form, form_of};
use super::{AcceptedAnswers, InputError, InputRequestOptions};
use crate::exchange::{BoxFuture, Context};

impl Context {
    /// Requests form input from the user (`elicitation/create`), and returns the content of the form.
    ///
    /// The fields of `T` are the fields of the form: strings, numbers, booleans, `enum`s without payload and lists of
    /// such `enum`s; `Option` and `#[serde(default)]` make a field optional. If the user declines, the future fails;
    /// use [`Elicitation::outcome`] to handle that case.
    ///
    /// The key identifies the input request within the request being handled. Each use of a key sends a new request.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Name {
    ///     /// As in the passport.
    ///     name: String,
    /// }
    ///
    /// # async fn reserve_seat() -> u32 { 12 }
    /// async fn book(cx: Context) -> Result<String, InputError> {
    ///     let seat = cx.once("seat", reserve_seat()).await?; // reserved once, although this function runs twice
    ///     let Name { name } = cx.elicit("name", format!("Who will sit on {seat}?")).await?;
    ///     Ok(format!("Seat {seat} is for {name}."))
    /// }
    /// ```
    pub fn elicit<T>(&self, key: impl Into<String>, message: impl Into<String>) -> Elicitation<T>
    where
        T: Form,
    {
        let form = form_of::<T>().map(|form| ElicitRequestFormParams::new(message, form));
        let (input_request, form) = match form {
            Ok(params) => (
                encode_input_request(InputKind::Elicitation, &params),
                Some(params.requested_schema),
            ),
            Err(not_a_form) => (Err(not_a_form.into()), None),
        };
        let input = PendingInput::new(self, key.into(), input_request, decode_form);
        Elicitation(input.with_form(form))
    }

    /// Requests that the user open a URL (`elicitation/create` in URL mode), for data that must not pass through the
    /// client.
    ///
    /// Success means that the user consented to open the URL, not that the interaction there was completed.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// # async fn create_order() -> u32 { 7 }
    /// async fn pay(cx: Context) -> Result<String, InputError> {
    ///     let order = cx.once("order", create_order()).await?; // created once, although this function runs twice
    ///     let url = format!("https://example.com/pay/{order}");
    ///     cx.elicit_url("payment", "Please pay.", url).await?;
    ///     Ok(format!("Order {order} waits for the payment."))
    /// }
    /// ```
    pub fn elicit_url(
        &self,
        key: impl Into<String>,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Elicitation<()> {
        let params = ElicitRequestUrlParams::new(message, url);
        let input_request = encode_input_request(InputKind::Elicitation, &params);
        Elicitation(PendingInput::new(
            self,
            key.into(),
            input_request,
            decode_consent,
        ))
    }

    /// Sends `elicitation/create` with the given params and returns the result. The content of an accepted form is
    /// validated against the requested schema.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// # use bowline::types::{ElicitRequestFormParams, ElicitResult};
    /// # async fn reserve_seat() -> u32 { 12 }
    /// async fn book(cx: Context, form: ElicitRequestFormParams) -> Result<ElicitResult, InputError> {
    ///     let _seat = cx.once("seat", reserve_seat()).await?; // reserved once, although this function runs twice
    ///     cx.elicit_raw("passenger", form).await
    /// }
    /// ```
    pub fn elicit_raw(
        &self,
        key: impl Into<String>,
        params: impl Into<ElicitRequestParams>,
    ) -> PendingInput<ElicitResult> {
        let params = params.into();
        let form = match &params {
            ElicitRequestParams::Form(params) => Some(params.requested_schema.clone()),
            _ => None,
        };
        let input_request = encode_input_request(InputKind::Elicitation, &params);
        let input = PendingInput::new(self, key.into(), input_request, decode);
        input.with_form(form)
    }

    /// Requests a message from the client's model (`sampling/createMessage`).
    ///
    /// Each tool use among the messages must be followed by its result; otherwise the future fails.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::exchange::InputError;
    /// use bowline::types::{CreateMessageRequestParams, Role, SamplingMessage, TextContent};
    ///
    /// # async fn buy_topic() -> String { "the sea".into() }
    /// async fn haiku(cx: Context) -> Result<String, InputError> {
    ///     let topic = cx.once("topic", buy_topic()).await?; // bought once, although this function runs twice
    ///     let message = SamplingMessage::new(Role::User, TextContent::new(format!("A haiku on {topic}, please.")));
    ///     let written = cx.sample("haiku", &CreateMessageRequestParams::new(vec![message], 100)).await?;
    ///     Ok(format!("{:?}", written.content))
    /// }
    /// ```
    pub fn sample(
        &self,
        key: impl Into<String>,
        params: &CreateMessageRequestParams,
    ) -> PendingInput<CreateMessageResult> {
        let input_request = check_tool_uses(&params.messages)
            .map_err(|violation| InputError::misuse(violation.to_string()))
            .and_then(|()| encode_input_request(InputKind::Sampling, params));
        PendingInput::new(self, key.into(), input_request, decode)
    }

    /// Sends any input request and returns the result, both as JSON.
    ///
    /// The request is converted to the client's protocol version first; see
    /// [`fit_question`](crate::exchange::fit_question). The result is not validated.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::exchange::{InputError, InputKind, RawInputRequest};
    /// use bowline::{Context, Json};
    ///
    /// # async fn start_scan() -> u32 { 1 }
    /// async fn roots(cx: Context) -> Result<Json, InputError> {
    ///     let _scan = cx.once("scan", start_scan()).await?; // started once, although this function runs twice
    ///     cx.ask_raw("roots", RawInputRequest::new(InputKind::Roots, None)).await
    /// }
    /// ```
    pub fn ask_raw(&self, key: impl Into<String>, request: RawInputRequest) -> PendingInput<Json> {
        let unchanged = |answer: &Json| Ok(answer.clone());
        PendingInput::new(self, key.into(), Ok(request), unchanged)
    }

    /// Requests the client's roots (`roots/list`): the `file://` URIs that the server may work in. They are requested
    /// once per handled request; later calls return the same roots.
    ///
    /// In the modern era (2026-07-28) **the handler runs again from its beginning** when the answer arrives. Wrap
    /// effects that precede this request in [`Context::once`]; see [the front page](crate#asking-people).
    ///
    /// # Errors
    ///
    /// See [`InputError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the input request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::exchange::InputError;
    ///
    /// # async fn start_scan() -> u32 { 1 }
    /// async fn scan(cx: Context) -> Result<String, InputError> {
    ///     let scan = cx.once("scan", start_scan()).await?; // started once, although this function runs twice
    ///     let roots = cx.roots().await?.roots;
    ///     Ok(format!("Scan {scan} reads {} folders.", roots.len()))
    /// }
    /// ```
    pub fn roots(&self) -> PendingInput<ListRootsResult> {
        let input_request = Ok(RawInputRequest::new(InputKind::Roots, None));
        PendingInput::new(self, "roots".into(), input_request, decode_roots)
    }
}

/// A future of the client's response to an input request. The request is sent when the future is first polled.
///
/// # Cancel safety
///
/// Dropping it cancels the input request.
#[must_use = "futures do nothing unless awaited"]
pub struct PendingInput<T> {
    state: PendingInputState<T>,
}

enum PendingInputState<T> {
    Unsent(Box<UnsentInputRequest<T>>),
    Sent(BoxFuture<'static, Result<T, InputError>>),
    Done,
}

struct UnsentInputRequest<T> {
    cx: Context,
    key: String,
    input_request: Result<RawInputRequest, InputError>,
    options: InputRequestOptions,
    /// The schema of an accepted answer.
    form: Option<ElicitSchema>,
    decode: DecodeAnswer<T>,
}

/// Decodes an answer.
type DecodeAnswer<T> = fn(&Json) -> Result<T, serde_json::Error>;

impl<T: 'static> PendingInput<T> {
    fn new(
        cx: &Context,
        key: String,
        input_request: Result<RawInputRequest, InputError>,
        decode: DecodeAnswer<T>,
    ) -> Self {
        let unsent = UnsentInputRequest {
            cx: cx.clone(),
            key,
            input_request,
            options: InputRequestOptions::default(),
            form: None,
            decode,
        };
        Self {
            state: PendingInputState::Unsent(Box::new(unsent)),
        }
    }

    fn with_form(mut self, form: Option<ElicitSchema>) -> Self {
        if let PendingInputState::Unsent(unsent) = &mut self.state {
            unsent.form = form;
        }
        self
    }

    /// Sets the timeout of the server-to-client request, in the legacy era. 5 min by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let PendingInputState::Unsent(unsent) = &mut self.state {
            unsent.options.timeout = Some(timeout);
        }
        self
    }

    /// Accepts an unsolicited answer: one that the client sent in `inputResponses` before the input was requested. That
    /// saves a round trip. By default such an answer is ignored.
    ///
    /// Do not use it for consent: the user may not have seen the request.
    pub fn accept_unsolicited(mut self) -> Self {
        if let PendingInputState::Unsent(unsent) = &mut self.state {
            unsent.options.accepted = AcceptedAnswers::All;
        }
        self
    }
}

impl<T: 'static> UnsentInputRequest<T> {
    async fn ask(self) -> Result<T, InputError> {
        let answer = self
            .cx
            .ask(&self.key, self.input_request?, self.options)
            .await?;
        let key = self.key;
        if let Some(form) = &self.form
            && let Err(why) = check_content(form, &answer)
        {
            return Err(InputError::InvalidAnswer { key, why });
        }
        (self.decode)(&answer).map_err(|error| InputError::InvalidAnswer {
            key,
            why: error.to_string(),
        })
    }
}

impl<T: 'static> Future for PendingInput<T> {
    type Output = Result<T, InputError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let PendingInputState::Unsent(_) = this.state
            && let PendingInputState::Unsent(unsent) =
                std::mem::replace(&mut this.state, PendingInputState::Done)
        {
            this.state = PendingInputState::Sent(Box::pin(unsent.ask()));
        }
        let PendingInputState::Sent(answer) = &mut this.state else {
            return Poll::Ready(Err(InputError::misuse(
                "`PendingInput` polled after completion",
            )));
        };
        let answer = task::ready!(answer.as_mut().poll(cx));
        this.state = PendingInputState::Done;
        Poll::Ready(answer)
    }
}

impl<T> fmt::Debug for PendingInput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match &self.state {
            PendingInputState::Unsent(unsent) => Some(&unsent.key),
            PendingInputState::Sent(_) | PendingInputState::Done => None,
        };
        f.debug_struct("PendingInput")
            .field("key", &key)
            .finish_non_exhaustive()
    }
}

/// An elicitation and the future of its content.
///
/// # Cancel safety
///
/// Dropping it cancels the input request.
#[must_use = "futures do nothing unless awaited"]
pub struct Elicitation<T>(PendingInput<ElicitationOutcome<T>>);

/// The user's response to an elicitation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "all revisions have exactly these three actions"
)]
pub enum ElicitationOutcome<T> {
    /// The user accepted, with this content.
    Accept(T),
    /// The user declined.
    Decline,
    /// The user dismissed the question, for example by closing the window.
    Cancel,
}

impl<T: 'static> Elicitation<T> {
    /// Sets the timeout of the server-to-client request, in the legacy era. 5 min by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// Accepts an unsolicited answer; see [`PendingInput::accept_unsolicited`].
    pub fn accept_unsolicited(self) -> Self {
        Self(self.0.accept_unsolicited())
    }

    /// Returns the action of the user instead of failing when the user declines.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::{InputError, ElicitationOutcome};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Name { name: String }
    /// async fn greet(cx: Context) -> Result<String, InputError> {
    ///     Ok(match cx.elicit("name", "Who are you?").outcome().await? {
    ///         ElicitationOutcome::Accept(Name { name }) => format!("Hello, {name}!"),
    ///         ElicitationOutcome::Decline | ElicitationOutcome::Cancel => "Hello, stranger!".to_owned(),
    ///     })
    /// }
    /// ```
    pub fn outcome(self) -> PendingInput<ElicitationOutcome<T>> {
        self.0
    }
}

impl<T: 'static> Future for Elicitation<T> {
    type Output = Result<T, InputError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let elicited = task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(elicited.and_then(ElicitationOutcome::accepted))
    }
}

impl<T> fmt::Debug for Elicitation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elicitation").field(&self.0).finish()
    }
}

impl<T> ElicitationOutcome<T> {
    /// Returns the content.
    ///
    /// # Errors
    ///
    /// If the user did not accept.
    pub fn accepted(self) -> Result<T, InputError> {
        match self {
            Self::Accept(answer) => Ok(answer),
            Self::Decline => Err(InputError::Declined),
            Self::Cancel => Err(InputError::Cancelled),
        }
    }
}

fn encode_input_request(
    kind: InputKind,
    params: &impl Serialize,
) -> Result<RawInputRequest, InputError> {
    let params = Json::encode(params).map_err(|error| {
        InputError::misuse(format!("failed to serialize an input request: {error}"))
    })?;
    Ok(RawInputRequest::new(kind, Some(params)))
}

/// Validates the content of an accepted answer against the requested schema.
fn check_content(form: &ElicitSchema, answer: &Json) -> Result<(), String> {
    let result: ElicitResult = answer.decode().map_err(|error| error.to_string())?;
    if result.action != ElicitAction::Accept {
        return Ok(());
    }
    let content = result.content.unwrap_or_else(Json::empty_object);
    check_form(form, &content).map_err(|error| error.to_string())
}

fn decode_roots(answer: &Json) -> Result<ListRootsResult, serde_json::Error> {
    let result: ListRootsResult = answer.decode()?;
    match result.roots.iter().all(Root::is_file) {
        true => Ok(result),
        false => Err(serde::de::Error::custom("roots must be `file://` URIs")),
    }
}

fn decode<T: DeserializeOwned>(answer: &Json) -> Result<T, serde_json::Error> {
    answer.decode()
}

fn decode_form<T: DeserializeOwned>(
    answer: &Json,
) -> Result<ElicitationOutcome<T>, serde_json::Error> {
    let result: ElicitResult = answer.decode()?;
    let content = result.content.unwrap_or_else(Json::empty_object);
    Ok(match result.action {
        ElicitAction::Accept => ElicitationOutcome::Accept(content.decode()?),
        ElicitAction::Decline => ElicitationOutcome::Decline,
        ElicitAction::Cancel => ElicitationOutcome::Cancel,
    })
}

fn decode_consent(answer: &Json) -> Result<ElicitationOutcome<()>, serde_json::Error> {
    let result: ElicitResult = answer.decode()?;
    Ok(match result.action {
        ElicitAction::Accept => ElicitationOutcome::Accept(()),
        ElicitAction::Decline => ElicitationOutcome::Decline,
        ElicitAction::Cancel => ElicitationOutcome::Cancel,
    })
}

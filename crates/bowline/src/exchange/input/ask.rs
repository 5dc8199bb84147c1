//! Questions, as the futures of their answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::ServerAsksBy;
use bowline_core::input::{Kind, Question, check_form, check_tool_uses, check_url};
use bowline_types::{
    CreateMessageRequestParams, CreateMessageResult, ElicitAction, ElicitRequestFormParams,
    ElicitRequestParams, ElicitRequestUrlParams, ElicitResult, ElicitSchema, Json, ListRootsResult,
    Root,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::form::form_of;
use super::{AskError, Counts, Terms};
use crate::exchange::{BoxFuture, Context};
use crate::random;

impl Context {
    /// Asks the user to fill in a form, and gives what was filled in.
    ///
    /// The fields of `T` are the fields of the form: texts, numbers, booleans, `enum`s without payload
    /// and lists of such; `Option` and `#[serde(default)]` make a field optional. That the user declines
    /// is an error here; see [`Elicit::outcome`] to go on without an answer.
    ///
    /// The key names the question in this request. Asking under one key again is another question, with
    /// an answer of its own.
    ///
    /// Code before a question may run more than once; see [`Context::once`].
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the question back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::AskError;
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Name {
    ///     /// As on the passport.
    ///     name: String,
    /// }
    ///
    /// async fn greet(cx: Context) -> Result<String, AskError> {
    ///     let Name { name } = cx.elicit("name", "Who are you?").await?;
    ///     Ok(format!("Hello, {name}!"))
    /// }
    /// ```
    pub fn elicit<T>(&self, key: impl Into<String>, message: impl Into<String>) -> Elicit<T>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        let form = form_of::<T>().map(|form| ElicitRequestFormParams::new(message, form));
        let (question, form) = match form {
            Ok(params) => (
                question(Kind::Elicitation, &params),
                Some(params.requested_schema),
            ),
            Err(not_a_form) => (Err(not_a_form.into()), None),
        };
        let ask = Ask::new(self, key.into(), question, read_form);
        Elicit(ask.filled_into(form))
    }

    /// Sends the user to a URL, for what must not pass through the client.
    ///
    /// The answer says that the user agreed to go there, not that anything was done there.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the question back.
    pub fn elicit_url(
        &self,
        key: impl Into<String>,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Elicit<()> {
        let params = ElicitRequestUrlParams::new(message, url);
        let question = self
            .fit_url(params)
            .and_then(|params| question(Kind::Elicitation, &params));
        Elicit(Ask::new(self, key.into(), question, read_consent))
    }

    /// Asks the user with params of your own and returns the result. The content of an accepted form is validated against the schema.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the question back.
    pub fn elicit_raw(
        &self,
        key: impl Into<String>,
        params: impl Into<ElicitRequestParams>,
    ) -> Ask<ElicitResult> {
        let (params, form) = match params.into() {
            ElicitRequestParams::Url(params) => {
                let params = self.fit_url(params).map(ElicitRequestParams::Url);
                (params, None)
            }
            ElicitRequestParams::Form(params) => {
                let form = params.requested_schema.clone();
                (Ok(ElicitRequestParams::Form(params)), Some(form))
            }
            other => (Ok(other), None),
        };
        let question = params.and_then(|params| question(Kind::Elicitation, &params));
        let ask = Ask::new(self, key.into(), question, decode);
        ask.filled_into(form)
    }

    /// Has the client's model write something.
    ///
    /// Each use of a tool among the messages must be followed by its result; otherwise nothing is asked.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the question back.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::exchange::AskError;
    /// use bowline::types::{CreateMessageRequestParams, Role, SamplingMessage, TextContent};
    ///
    /// async fn haiku(cx: Context) -> Result<String, AskError> {
    ///     let message = SamplingMessage::new(Role::User, TextContent::new("A haiku, please."));
    ///     let written = cx.sample("haiku", &CreateMessageRequestParams::new(vec![message], 100)).await?;
    ///     Ok(format!("{:?}", written.content))
    /// }
    /// ```
    pub fn sample(
        &self,
        key: impl Into<String>,
        params: &CreateMessageRequestParams,
    ) -> Ask<CreateMessageResult> {
        let question = check_tool_uses(&params.messages)
            .map_err(|violation| AskError::misuse(violation.to_string()))
            .and_then(|()| question(Kind::Sampling, params));
        Ask::new(self, key.into(), question, decode)
    }

    /// Asks which folders the server may work in. They are `file://` URIs.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes the question back.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::exchange::AskError;
    ///
    /// async fn folders(cx: Context) -> Result<usize, AskError> {
    ///     Ok(cx.roots().await?.roots.len())
    /// }
    /// ```
    pub fn roots(&self) -> Ask<ListRootsResult> {
        let question = Ok(Question::new(Kind::Roots, None));
        Ask::new(self, "roots".into(), question, read_roots)
    }

    /// Where a server sends requests, one for a URL has an id that a later notification refers to.
    fn fit_url(
        &self,
        mut params: ElicitRequestUrlParams,
    ) -> Result<ElicitRequestUrlParams, AskError> {
        check_url(&params.url).map_err(|unfit| AskError::misuse(unfit.to_string()))?;
        match self.caller().dialect.server_asks_by {
            ServerAsksBy::InputRequired => params.elicitation_id = None,
            ServerAsksBy::Request if params.elicitation_id.is_none() => {
                params.elicitation_id = Some(random_id()?);
            }
            ServerAsksBy::Request => {}
        }
        Ok(params)
    }
}

/// A question, and the future of its answer. Nothing is asked until it is polled.
///
/// # Cancel safety
///
/// Dropping it takes the question back.
#[must_use = "nothing is asked until it is awaited"]
pub struct Ask<T> {
    state: State<T>,
}

enum State<T> {
    Draft(Box<Draft<T>>),
    Asking(BoxFuture<'static, Result<T, AskError>>),
    Done,
}

struct Draft<T> {
    cx: Context,
    key: String,
    question: Result<Question, AskError>,
    terms: Terms,
    /// The schema of an accepted answer.
    form: Option<ElicitSchema>,
    read: Read<T>,
}

/// Reads an answer, or says what is wrong with it.
type Read<T> = fn(&Json) -> Result<T, serde_json::Error>;

impl<T: 'static> Ask<T> {
    fn new(cx: &Context, key: String, question: Result<Question, AskError>, read: Read<T>) -> Self {
        let draft = Draft {
            cx: cx.clone(),
            key,
            question,
            terms: Terms::default(),
            form: None,
            read,
        };
        Self {
            state: State::Draft(Box::new(draft)),
        }
    }

    fn filled_into(mut self, form: Option<ElicitSchema>) -> Self {
        if let State::Draft(draft) = &mut self.state {
            draft.form = form;
        }
        self
    }

    /// How long the client may take to answer, where it is asked directly. 5 min by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let State::Draft(draft) = &mut self.state {
            draft.terms.timeout = Some(timeout);
        }
        self
    }

    /// Also takes an answer that the request brought along before this was asked, where a request is sent
    /// again with its answers. That saves a client that knows the question a round trip. Otherwise such an
    /// answer is ignored, and the question asked.
    ///
    /// Whoever answers like that has not seen the question: do not ask for consent in this way.
    pub fn even_unasked(mut self) -> Self {
        if let State::Draft(draft) = &mut self.state {
            draft.terms.counts = Counts::EvenUnasked;
        }
        self
    }
}

impl<T: 'static> Draft<T> {
    async fn ask(self) -> Result<T, AskError> {
        let answer = self.cx.ask(&self.key, self.question?, self.terms).await?;
        let key = self.key;
        if let Some(form) = &self.form
            && let Err(why) = check_filled(form, &answer)
        {
            return Err(AskError::Unfit { key, why });
        }
        (self.read)(&answer).map_err(|error| AskError::Unfit {
            key,
            why: error.to_string(),
        })
    }
}

impl<T: 'static> Future for Ask<T> {
    type Output = Result<T, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let State::Draft(_) = this.state
            && let State::Draft(draft) = std::mem::replace(&mut this.state, State::Done)
        {
            this.state = State::Asking(Box::pin(draft.ask()));
        }
        let State::Asking(asking) = &mut this.state else {
            return Poll::Ready(Err(AskError::misuse("an answer was polled for twice")));
        };
        let answer = task::ready!(asking.as_mut().poll(cx));
        this.state = State::Done;
        Poll::Ready(answer)
    }
}

impl<T> fmt::Debug for Ask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match &self.state {
            State::Draft(draft) => Some(&draft.key),
            State::Asking(_) | State::Done => None,
        };
        f.debug_struct("Ask")
            .field("key", &key)
            .finish_non_exhaustive()
    }
}

/// A question to the user, and the future of what was filled in.
///
/// # Cancel safety
///
/// Dropping it takes the question back.
#[must_use = "nothing is asked until it is awaited"]
pub struct Elicit<T>(Ask<Elicited<T>>);

/// What a user did when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "every revision has these three and no other"
)]
pub enum Elicited<T> {
    /// Agreed, and filled this in.
    Accept(T),
    /// Said no.
    Decline,
    /// Said neither yes nor no, such as by closing the window.
    Cancel,
}

impl<T: 'static> Elicit<T> {
    /// How long the user may take to answer, where the client is asked directly. 5 min by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// Also takes an answer that the request brought along before this was asked; see
    /// [`Ask::even_unasked`].
    pub fn even_unasked(self) -> Self {
        Self(self.0.even_unasked())
    }

    /// Gives what the user did, whatever it was.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::{AskError, Elicited};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Name { name: String }
    /// async fn greet(cx: Context) -> Result<String, AskError> {
    ///     Ok(match cx.elicit("name", "Who are you?").outcome().await? {
    ///         Elicited::Accept(Name { name }) => format!("Hello, {name}!"),
    ///         Elicited::Decline | Elicited::Cancel => "Hello, stranger!".to_owned(),
    ///     })
    /// }
    /// ```
    pub fn outcome(self) -> Ask<Elicited<T>> {
        self.0
    }
}

impl<T: 'static> Future for Elicit<T> {
    type Output = Result<T, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let elicited = task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(elicited.and_then(Elicited::accepted))
    }
}

impl<T> fmt::Debug for Elicit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elicit").field(&self.0).finish()
    }
}

impl<T> Elicited<T> {
    /// What was filled in.
    ///
    /// # Errors
    ///
    /// If the user did not agree.
    pub fn accepted(self) -> Result<T, AskError> {
        match self {
            Self::Accept(answer) => Ok(answer),
            Self::Decline => Err(AskError::Declined),
            Self::Cancel => Err(AskError::Dismissed),
        }
    }
}

fn question(kind: Kind, params: &impl Serialize) -> Result<Question, AskError> {
    let params = Json::encode(params)
        .map_err(|error| AskError::misuse(format!("a question has no JSON form: {error}")))?;
    Ok(Question::new(kind, Some(params)))
}

/// Validates the content of an accepted answer against the requested schema.
fn check_filled(form: &ElicitSchema, answer: &Json) -> Result<(), String> {
    let result: ElicitResult = answer.decode().map_err(|error| error.to_string())?;
    if result.action != ElicitAction::Accept {
        return Ok(());
    }
    let content = result.content.unwrap_or_else(Json::empty_object);
    check_form(form, &content).map_err(|unfit| unfit.to_string())
}

fn read_roots(answer: &Json) -> Result<ListRootsResult, serde_json::Error> {
    let result: ListRootsResult = answer.decode()?;
    match result.roots.iter().all(Root::is_file) {
        true => Ok(result),
        false => Err(serde::de::Error::custom("roots must be `file://` URIs")),
    }
}

fn decode<T: DeserializeOwned>(answer: &Json) -> Result<T, serde_json::Error> {
    answer.decode()
}

fn read_form<T: DeserializeOwned>(answer: &Json) -> Result<Elicited<T>, serde_json::Error> {
    let result: ElicitResult = answer.decode()?;
    let content = result.content.unwrap_or_else(Json::empty_object);
    Ok(match result.action {
        ElicitAction::Accept => Elicited::Accept(content.decode()?),
        ElicitAction::Decline => Elicited::Decline,
        ElicitAction::Cancel => Elicited::Cancel,
    })
}

fn read_consent(answer: &Json) -> Result<Elicited<()>, serde_json::Error> {
    let result: ElicitResult = answer.decode()?;
    Ok(match result.action {
        ElicitAction::Accept => Elicited::Accept(()),
        ElicitAction::Decline => Elicited::Decline,
        ElicitAction::Cancel => Elicited::Cancel,
    })
}

fn random_id() -> Result<String, AskError> {
    let bytes: [u8; 16] = random::bytes().map_err(AskError::misuse)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

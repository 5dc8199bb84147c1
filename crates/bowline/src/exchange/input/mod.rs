//! Input from the client, asked for in one way and obtained in two.
//!
//! ```text
//!                       ┌─ the era has server requests: ask the client, wait
//! cx.elicit(key, …) ────┤
//!                       └─ it has not: is it answered? ─yes─▶ go on
//!                                          └─no─▶ the round is over; the handler runs again on the retry
//! ```
//!
//! A handler cannot tell which. So it is written to be run again from its beginning: with the same
//! answers it asks the same questions under the same keys, and what must happen only once is wrapped in
//! [`Context::once`].

mod ask;
pub use ask::{Ask, Elicit, Elicited};

mod error;
pub use error::AskError;

mod form;
pub use form::NotAForm;

mod memory;

mod once;
pub(crate) use once::Once;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bowline_core::era::{ElicitationModes, Request, ServerAsksBy};
use bowline_core::input::{Asked, Kind, Question, Round};
use bowline_core::mux::CallOptions;
use bowline_types::{ElicitMode, Json, RpcError};

use super::{Answer, Context};
use crate::{Error, deprecation};

/// One round of a request, shared by the handler that asks and the runner that ends the round.
pub(crate) struct Input {
    asking: Mutex<Asking>,
    /// How long a client may take to answer where it is asked directly.
    timeout: Duration,
    /// Guards `Context::once`; `None` in a first round.
    once: Option<Once>,
}

struct Asking {
    /// `None` once the round is over.
    round: Option<Round>,
    /// How often each key was used in this run.
    uses: BTreeMap<String, u32>,
    /// Who ends the round. A question may come from a task that the handler spawned.
    runner: Option<Waker>,
    /// What the client could not be asked.
    unaskable: Option<Unaskable>,
}

/// A question that could not be asked: what the handler was told, and what the caller is told if the handler
/// fails for this reason alone.
pub(crate) struct Unaskable {
    pub(crate) why: String,
    pub(crate) error: RpcError,
}

impl Input {
    pub(crate) fn new(round: Round, timeout: Duration, once: Option<Once>) -> Self {
        Self {
            once,
            asking: Mutex::new(Asking {
                round: Some(round),
                uses: BTreeMap::new(),
                runner: None,
                unaskable: None,
            }),
            timeout,
        }
    }

    /// Whether a question waits for the client.
    pub(crate) fn is_pending(&self) -> bool {
        self.lock().round.as_ref().is_some_and(Round::is_pending)
    }

    /// Takes the round away: what is asked from now on is too late.
    pub(crate) fn take_round(&self) -> Option<Round> {
        self.lock().round.take()
    }

    /// What the client could not be asked, if the handler tried.
    pub(crate) fn take_unaskable(&self) -> Option<Unaskable> {
        self.lock().unaskable.take()
    }

    /// Has `runner` woken when a question comes up.
    pub(crate) fn wake_on_question(&self, runner: &Waker) {
        let runner = runner.clone();
        let old = self.lock().runner.replace(runner);
        drop(old);
    }

    fn ask(
        self: &Arc<Self>,
        key: &str,
        question: Question,
        counts: Counts,
    ) -> Result<Found, AskError> {
        let mut asking = self.lock();
        let key = asking.number(key);
        let round = asking.round.as_mut().ok_or(AskError::Over)?;
        if counts == Counts::EvenUnasked {
            round.take_unasked(&key, &question);
        }
        match round.ask(&key, question)? {
            Asked::Answered(answer) => Ok(Found::Answer(answer)),
            Asked::Pending => {
                let runner = asking.runner.take();
                drop(asking);
                runner.into_iter().for_each(Waker::wake);
                let input = self.clone();
                Ok(Found::Nothing(Waiting { input, key }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asking> {
        // No code that could panic runs under this lock.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// Tells the uses of one key apart, so that a loop that asks until it likes the answer gets a new
    /// answer each time: `age`, `age#2`, `age#3`.
    fn number(&mut self, key: &str) -> String {
        let uses = self.uses.entry(key.to_owned()).or_default();
        *uses += 1;
        match *uses {
            1 => key.to_owned(),
            nth => format!("{key}#{nth}"),
        }
    }
}

/// What is particular about one question.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    /// How long the client may take, where it is asked directly.
    timeout: Option<Duration>,
    counts: Counts,
}

/// Which answers count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Counts {
    /// To what was asked.
    #[default]
    Asked,
    /// Also one that the request brought along before it was asked.
    EvenUnasked,
}

enum Found {
    Answer(Json),
    Nothing(Waiting),
}

/// A question that waits for the round to end. Dropping it takes the question back.
struct Waiting {
    input: Arc<Input>,
    key: String,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(round) = &mut self.input.lock().round {
            round.withdraw(&self.key);
        }
    }
}

impl Context {
    /// Gets an answer, in whatever way the caller's era has.
    ///
    /// # Cancel safety
    ///
    /// Dropping it takes the question back.
    async fn ask(&self, key: &str, question: Question, terms: Terms) -> Result<Json, AskError> {
        self.check(key, &question)?;
        deprecation::warn_of(question.kind.method(), self.caller().dialect);
        let answer = async {
            match self.caller().dialect.server_asks_by {
                ServerAsksBy::Request => self.ask_and_wait(key, question, terms.timeout).await,
                ServerAsksBy::InputRequired => self.ask_in_round(key, question, terms.counts).await,
            }
        };
        tokio::select! {
            // An answer that is there counts, even if nobody may want it any more.
            biased;
            answer = answer => answer,
            () = self.cancelled() => Err(AskError::Over),
        }
    }

    fn check(&self, key: &str, question: &Question) -> Result<(), AskError> {
        if key.is_empty() || key.contains('#') {
            return Err(AskError::misuse(format!(
                "the key `{key}` of a question must not be empty or contain `#`, which numbers its uses"
            )));
        }
        if self.is_cancelled() {
            return Err(AskError::Over);
        }
        let askable = self.check_dialect(question).and_then(|()| {
            let declared = &self.caller().capabilities;
            question
                .check_capabilities(declared)
                .map_err(AskError::from)
        });
        askable.inspect_err(|error| {
            if let Some(input) = self.input() {
                input.lock().unaskable = Some(Unaskable {
                    why: error.to_string(),
                    error: error.to_rpc_error(),
                });
            }
        })
    }

    /// A client may declare what its version does not have.
    fn check_dialect(&self, question: &Question) -> Result<(), AskError> {
        let dialect = self.caller().dialect;
        let method = question.kind.method();
        let unsupported = |what| AskError::Unsupported {
            what,
            version: dialect.version,
        };
        if dialect.server_asks_by == ServerAsksBy::Request && dialect.lacks_server_request(method) {
            return Err(unsupported(method));
        }
        if !dialect.rich_sampling && question.uses_tools() {
            return Err(unsupported("sampling/createMessage with tools"));
        }
        if !dialect.rich_forms && question.offers_several() {
            return Err(unsupported(
                "elicitation/create for a choice of several values",
            ));
        }
        if question.kind != Kind::Elicitation {
            return Ok(());
        }
        match dialect.elicitation {
            ElicitationModes::FormAndUrl => Ok(()),
            ElicitationModes::Form if !is_url(question) => Ok(()),
            ElicitationModes::Form => Err(unsupported("elicitation/create by URL")),
            ElicitationModes::None => Err(unsupported(method)),
        }
    }

    /// Asks the client directly. Dropping the future tells it that the question is void.
    async fn ask_and_wait(
        &self,
        key: &str,
        question: Question,
        timeout: Option<Duration>,
    ) -> Result<Json, AskError> {
        let Some(client) = self.way_back() else {
            let why = "there is no way back to the client of this request";
            return Err(AskError::Nobody { why });
        };
        let own = self.input().map(|input| input.timeout);
        let options = CallOptions {
            total_timeout: Some(timeout.or(own).unwrap_or(DEFAULT_ASK_TIMEOUT)),
            ..CallOptions::default()
        };
        let (method, params) = question.into_request();
        let params = params.unwrap_or_else(Json::empty_object);
        let request = Request::new(method, params, self.shared_caller());
        let key = key.to_owned();
        match client.open(request, options).answer().await {
            Ok(Answer::Complete(answer)) => Ok(answer),
            Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => {
                let why = "it is no answer but asks back".into();
                Err(AskError::Unfit { key, why })
            }
            Err(Error::Peer(error)) => Err(AskError::Refused { key, error }),
            Err(source) => Err(AskError::Lost { key, source }),
        }
    }

    /// Finds the answer that an earlier round brought, or waits for this round to end.
    async fn ask_in_round(
        &self,
        key: &str,
        question: Question,
        counts: Counts,
    ) -> Result<Json, AskError> {
        let Some(input) = self.input() else {
            let why = "a request of this method may not need input";
            return Err(AskError::Nobody { why });
        };
        match input.ask(key, question, counts)? {
            Found::Answer(answer) => Ok(answer),
            Found::Nothing(_waiting) => {
                // Whoever ends the round drops the handler, and cancels what it has spawned.
                self.cancelled().await;
                Err(AskError::Over)
            }
        }
    }
}

fn is_url(question: &Question) -> bool {
    #[derive(serde::Deserialize)]
    struct Mode {
        mode: Option<ElicitMode>,
    }
    let params = question.params.as_ref();
    let mode = params.and_then(|params| params.decode::<Mode>().ok());
    mode.is_some_and(|params| params.mode == Some(ElicitMode::Url))
}

/// How long a client may take to answer where it is asked directly, unless somebody says otherwise.
pub(crate) const DEFAULT_ASK_TIMEOUT: Duration = Duration::from_secs(5 * 60);

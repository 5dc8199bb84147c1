//! Tokens at work: shown with requests, renewed in time, asked for again when a server wants more.
//!
//! Whatever gets a token is a *flight*, and there is one at a time. Everybody who needs a token waits for the
//! same one; it ends early if nobody waits any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::exchange::BoxFuture;
use bowline::http::client::{Challenge, Reason, Refusal};
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, request, response};
use tokio::sync::OnceCell;
use url::Url;

use super::credentials::{Credentials, TokenKind, Tokens};
use super::dpop::{ProofKey, Proving};
use super::fetch::Fetch;
use super::flow::{DPOP_NONCE, Flow, Intent, Setup, Step};
use super::guard::Guard;
use super::moment::Moment;
use super::oauth::Config;
use super::scopes::Scopes;
use super::user_agent::{AppError, Visit};
use super::{Error, Result};

/// Tokens for one server.
pub(crate) struct Runtime {
    server: Url,
    guard: Guard,
    fetch: Fetch,
    config: Config,
    /// Made, and the memory filled, when it is first needed.
    proof_key: OnceCell<Arc<ProofKey>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    credentials: Credentials,
    /// What the server wants to see in the next proof.
    nonce: Option<HeaderValue>,
    /// Whether the token came by renewal, and nothing was accepted since.
    is_unproven: bool,
    flight: Option<Flight>,
}

/// A flow under way, and what for.
struct Flight {
    intent: Intent,
    landing: WeakShared<Landing>,
}

type Landing = BoxFuture<'static, Result<(), Arc<Error>>>;

impl Runtime {
    pub(crate) fn new(server: Url, guard: Guard, fetch: Fetch, config: Config) -> Self {
        Self {
            server,
            guard,
            fetch,
            config,
            proof_key: OnceCell::new(),
            memory: Mutex::default(),
        }
    }

    /// Shows the token, if there is one and the request goes to the server that it is for.
    pub(crate) async fn sign(self: &Arc<Self>, head: &mut request::Parts) -> Result<()> {
        let key = self.ready().await?;
        let url = Url::parse(&head.uri.to_string());
        let Some(url) = url.ok().filter(|url| url.origin() == self.server.origin()) else {
            return Ok(());
        };
        self.renew_in_time().await;
        let Some(tokens) = self.tokens() else {
            return Ok(());
        };
        if tokens.kind == TokenKind::Dpop {
            let nonce = self.lock().nonce.clone();
            let proving = Proving {
                method: &head.method,
                url: &url,
                token: Some(&tokens.access),
                nonce: nonce.as_ref().and_then(|nonce| nonce.to_str().ok()),
            };
            let proof = key.prove(&proving, &moment()?)?;
            head.headers.insert(DPOP, header_value(&proof)?);
        }
        let value = header_value(&tokens.header())?;
        head.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Hears what the server wants to see in the next proof, and that it accepts what it was shown.
    pub(crate) fn hear(&self, head: &response::Parts) {
        let mut memory = self.lock();
        if let Some(nonce) = head.headers.get(DPOP_NONCE) {
            memory.nonce = Some(nonce.clone());
        }
        memory.is_unproven &= !head.status.is_success();
    }

    /// Does what it takes to get a refused request accepted.
    pub(crate) async fn answer(self: &Arc<Self>, refusal: &Refusal) -> Result<(), Arc<Error>> {
        let challenge = pick(&refusal.challenges);
        match refusal.reason {
            Reason::Nonce => Ok(()), // it was heard
            Reason::InsufficientScope => self.step_up(refusal, challenge).await,
            // Somebody else got a new token meanwhile.
            _ if !self.is_current(refusal) => Ok(()),
            _ => {
                // A token that was refused although it is fresh would be renewed for ever.
                let is_unproven = self.lock().is_unproven;
                if self.can_renew() && !is_unproven {
                    let renewed = self.fly(Intent::Renew, challenge.clone()).await;
                    if renewed.is_ok() {
                        return Ok(());
                    }
                }
                self.obtain(challenge).await
            }
        }
    }

    /// Asks for more scopes, unless they were asked for already: then asking again would not help.
    async fn step_up(
        self: &Arc<Self>,
        refusal: &Refusal,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        let wanted = challenge.as_ref().and_then(Challenge::scope);
        let wanted = Scopes::parse(wanted.unwrap_or_default());
        if self.has_asked_for(&wanted) {
            if !self.is_current(refusal) {
                return Ok(()); // somebody else did, meanwhile
            }
            let scopes = wanted.to_string();
            return Err(Arc::new(Error::StillNotEnough { scopes }));
        }
        self.obtain(challenge.clone()).await?;
        if self.has_asked_for(&wanted) {
            return Ok(());
        }
        // That was somebody else's flight, for other scopes.
        self.obtain(challenge).await
    }

    fn has_asked_for(&self, scopes: &Scopes) -> bool {
        self.tokens()
            .is_some_and(|tokens| tokens.requested.contains_all(scopes))
    }

    /// Gets a token, whatever it takes.
    pub(crate) async fn obtain(
        self: &Arc<Self>,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        self.fly(Intent::Obtain, challenge).await
    }

    pub(crate) async fn forget(&self) -> Result<()> {
        self.ready().await?;
        let credentials = {
            let mut memory = self.lock();
            memory.credentials.tokens = None;
            memory.credentials.clone()
        };
        self.save(&credentials).await
    }

    /// Renews a token that is about to expire. If that fails, the server will say what it wants.
    async fn renew_in_time(self: &Arc<Self>) {
        let renew_at = {
            let memory = self.lock();
            let tokens = memory.credentials.tokens.as_ref();
            tokens.and_then(|tokens| tokens.renew_at)
        };
        if renew_at.is_none_or(|at| at > Moment::seconds_now()) {
            return;
        }
        let renewed = if self.can_renew() {
            self.fly(Intent::Renew, None).await
        } else if self.config.application.needs_nobody() {
            self.fly(Intent::Obtain, None).await
        } else {
            return;
        };
        if let Err(error) = renewed {
            tracing::debug!(%error, "a token was not renewed");
        }
    }

    /// Waits for a flight that is under way, or starts one.
    async fn fly(
        self: &Arc<Self>,
        intent: Intent,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        loop {
            match self.board(intent, challenge.as_ref()) {
                // Whether it was started here or elsewhere: if it fails, so would another.
                (own, landing) if own == intent => return landing.await,
                // It may bring back what is needed here, or not; whoever asked knows.
                (_, landing) => drop(landing.await),
            }
        }
    }

    /// The flight that is under way, or a new one.
    fn board(
        self: &Arc<Self>,
        intent: Intent,
        challenge: Option<&Challenge>,
    ) -> (Intent, Shared<Landing>) {
        let mut memory = self.lock();
        let flight = memory.flight.as_ref();
        if let Some((intent, landing)) =
            flight.and_then(|flight| Some((flight.intent, flight.landing.upgrade()?)))
        {
            return (intent, landing);
        }
        let (runtime, challenge) = (self.clone(), challenge.cloned());
        let flight: Landing = Box::pin(async move {
            let landed = runtime.perform(intent, challenge).await;
            runtime.lock().flight = None;
            landed.map_err(Arc::new)
        });
        let landing = flight.shared();
        let under_way = landing.downgrade();
        memory.flight = under_way.map(|landing| Flight { intent, landing });
        drop(memory);
        if intent == Intent::Renew {
            // A refresh token may be used up by the request, so its successor must be taken in even if nobody
            // waits. The limits of its requests bound this task.
            tokio::spawn(landing.clone());
        }
        (intent, landing)
    }

    /// Performs a flow, and keeps what it learned.
    async fn perform(&self, intent: Intent, challenge: Option<Challenge>) -> Result<()> {
        let proof_key = self.ready().await?.clone();
        if intent == Intent::Renew && self.adopt().await? {
            return Ok(());
        }
        let needs_person = intent == Intent::Obtain && !self.config.application.needs_nobody();
        let visit = match needs_person {
            true => Some(self.prepare().await?),
            false => None,
        };
        let mut flow = Flow::new(Setup {
            server: self.server.clone(),
            application: Arc::new(self.config.application.clone()),
            guard: self.guard,
            intent,
            challenge,
            credentials: self.lock().credentials.clone(),
            proof_key,
            redirect_uri: visit.as_ref().map(|visit| visit.redirect_uri().to_owned()),
        });
        let performed = self.walk(&mut flow, visit).await;
        self.keep(flow.credentials()).await;
        self.lock().is_unproven = intent == Intent::Renew && performed.is_ok();
        performed
    }

    /// Remembers what a flow learned, here and in the store.
    async fn keep(&self, credentials: &Credentials) {
        self.lock().credentials = credentials.clone();
        if let Err(error) = self.save(credentials).await {
            // They are good as long as this program runs.
            tracing::warn!(%error, "credentials were not kept");
        }
    }

    /// Takes over a token that another program got in the meantime, which may have used up ours.
    async fn adopt(&self) -> Result<bool> {
        let Some(stored) = self.load().await? else {
            return Ok(false);
        };
        let mut memory = self.lock();
        let ours = &memory.credentials;
        let is_other = stored.tokens.is_some()
            && stored.tokens != ours.tokens
            && stored.proof_key == ours.proof_key;
        if is_other {
            memory.credentials = stored;
            memory.is_unproven = false;
        }
        Ok(is_other)
    }

    async fn walk(&self, flow: &mut Flow, mut visit: Option<Box<dyn Visit>>) -> Result<()> {
        let mut step = flow.begin()?;
        loop {
            step = match step {
                Step::Send(request) => {
                    let response = self.fetch.send(request).await?;
                    flow.response(&response, &moment()?)?
                }
                Step::Open(url) => {
                    let Some(visit) = visit.take() else {
                        return Err(Error::misuse("nobody can be asked twice"));
                    };
                    // Whoever stops waiting now need not register again.
                    self.keep(flow.credentials()).await;
                    let after = self.config.patience;
                    let came = tokio::time::timeout(after, visit.open(url.into())).await;
                    let came = came.map_err(|_| Error::NobodyCame { after })?;
                    let came = came.map_err(|error| failed("the browser failed", error))?;
                    flow.redirected(&came, &moment()?)?
                }
                Step::Assert(issuer) => {
                    let Some(assertions) = &self.config.assertions else {
                        return Err(Error::misuse("no client assertion is configured"));
                    };
                    let failed = |error| failed("failed to get the client assertion", error);
                    let assertion = assertions(issuer).await.map_err(failed)?;
                    flow.asserted(&assertion, &moment()?)?
                }
                Step::Done => return Ok(()),
            };
        }
    }

    async fn prepare(&self) -> Result<Box<dyn Visit>> {
        let Some(user_agent) = &self.config.user_agent else {
            return Err(Error::misuse(
                "a person has to agree, and nobody takes them there: give OAuth a user agent",
            ));
        };
        let prepared = user_agent.prepare().await;
        prepared.map_err(|error| failed("nobody can come back from the browser", error))
    }

    /// Fills the memory from the store, once, and makes the key that tokens may be bound to.
    async fn ready(&self) -> Result<&Arc<ProofKey>> {
        let filling = self.proof_key.get_or_try_init(|| async {
            let mut credentials = self.load().await?.unwrap_or_default();
            let kept = match &credentials.proof_key {
                Some(kept) => kept.clone(),
                None => ProofKey::generate()?,
            };
            let key = ProofKey::read(&kept)?;
            credentials.proof_key = Some(kept);
            self.lock().credentials = credentials;
            Ok(Arc::new(key))
        });
        filling.await
    }

    async fn load(&self) -> Result<Option<Credentials>> {
        let loaded = self.config.store.load(self.server.as_str()).await;
        loaded.map_err(|error| failed("the store cannot be read", error))
    }

    async fn save(&self, credentials: &Credentials) -> Result<()> {
        let saved = self.config.store.save(self.server.as_str(), credentials);
        let failed = |error| failed("the store cannot be written", error);
        saved.await.map_err(failed)
    }

    /// Whether the request that was refused showed what would be shown now.
    fn is_current(&self, refusal: &Refusal) -> bool {
        let shown = self.tokens().map(|tokens| tokens.header());
        refusal.sent.as_ref().map(HeaderValue::as_bytes) == shown.as_ref().map(String::as_bytes)
    }

    fn can_renew(&self) -> bool {
        self.tokens().is_some_and(|tokens| tokens.refresh.is_some())
    }

    fn tokens(&self) -> Option<Tokens> {
        self.lock().credentials.tokens.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // No code that could panic runs under this lock.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a token has to answer: the challenge that asks for a proof, if there is one, with what the others add.
fn pick(challenges: &[Challenge]) -> Option<Challenge> {
    let of = |scheme| challenges.iter().find(|challenge| challenge.is(scheme));
    let (bound, bearer) = (of("DPoP"), of("Bearer"));
    let mut picked = bound.or(bearer)?.clone();
    for (name, value) in bearer.into_iter().flat_map(|bearer| &bearer.params) {
        if picked.param(name).is_none() {
            picked.params.push((name.clone(), value.clone()));
        }
    }
    Some(picked)
}

fn header_value(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::broken("the token does not fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn moment() -> Result<Moment> {
    Moment::now().map_err(|error| failed("there is no randomness", error.into()))
}

fn failed(what: &'static str, source: AppError) -> Error {
    Error::Application { what, source }
}

const DPOP: HeaderName = HeaderName::from_static("dpop");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_preferred_and_nothing_that_was_said_is_lost() {
        let picked = |said: &[&str]| {
            let picked = pick(&Challenge::parse_all(said.iter().copied()));
            picked.map(|picked| picked.to_string())
        };

        assert_eq!(picked(&["Basic realm=\"x\""]), None);
        assert_eq!(
            picked(&["Basic, Bearer scope=\"a\""]).as_deref(),
            Some("Bearer scope=\"a\"")
        );
        assert_eq!(
            picked(&["Bearer scope=\"a\"", "DPoP algs=\"ES256\""]).as_deref(),
            Some("DPoP algs=\"ES256\", scope=\"a\"")
        );
    }
}

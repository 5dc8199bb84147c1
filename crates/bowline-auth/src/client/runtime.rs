//! Tokens at work: shown with requests, renewed in time, asked for again when a server wants more.
//!
//! Whatever gets a token is a *flight*, and there is one at a time. Everybody who needs a token waits for the
//! same one; it ends early if nobody waits any more.

mod pending;
pub use pending::PendingAuthorization;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{Challenge, Reason, Refusal};
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, request, response};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use super::credentials::{Credentials, TokenKind, Tokens};
use super::dpop::{ProofKey, Proving};
use super::fetch::Fetch;
use super::flow::{DPOP_NONCE, Flow, Intent, Setup, Step};
use super::guard::Guard;
use super::kept::{Kept, Turn};
use super::merge::Learned;
use super::moment::Moment;
use super::oauth::Config;
use super::prompts::Prompts;
use super::scopes::Scopes;
use super::user_agent::{AppError, Visit};
use super::{Error, Result};

/// Tokens for one server.
pub(crate) struct Runtime {
    server: Url,
    guard: Guard,
    fetch: Fetch,
    config: Config,
    kept: Kept,
    /// How much earlier than necessary this client renews tokens, of the time that there is for it. Others that
    /// share the token have another share, so that they do not all renew it in the same second.
    eagerness: Duration,
    /// Filled from the store when it is first needed.
    filled: OnceCell<()>,
    memory: Mutex<Memory>,
}

struct Memory {
    credentials: Credentials,
    /// The key that tokens are bound to: the one in the credentials.
    proof_key: Option<Arc<ProofKey>>,
    /// Whether the store has what is here.
    is_kept: bool,
    /// Counts how often the token was forgotten. A flight that began before that brings none back.
    epoch: u64,
    /// What the server wants to see in the next proof.
    nonce: Option<HeaderValue>,
    /// A number of the user whose tokens these are. A renewal keeps it.
    user: u64,
    /// Whether the token came by renewal, and nothing was accepted since.
    is_unproven: bool,
    flight: Option<Flight>,
    flights: u64,
    prompts: Prompts,
    backoff: Option<Backoff>,
}

/// A flow under way, and what for.
struct Flight {
    number: u64,
    intent: Intent,
    landing: WeakShared<Landing>,
}

type Landing = BoxFuture<'static, Result<(), Arc<Error>>>;

/// The authorization server failed, and is left alone for a while.
struct Backoff {
    failures: u32,
    until: Instant,
    error: Arc<Error>,
}

/// Whether a token is to be renewed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    No,
    /// It is still good meanwhile.
    Soon,
    /// It has expired.
    Now,
}

impl Runtime {
    pub(crate) fn new(server: Url, guard: Guard, fetch: Fetch, config: Config) -> Result<Self> {
        let memory = Memory {
            credentials: Credentials::default(),
            proof_key: None,
            is_kept: true,
            epoch: 0,
            nonce: None,
            user: 0,
            is_unproven: false,
            flight: None,
            flights: 0,
            prompts: Prompts::new(config.max_prompts, config.prompts_within),
            backoff: None,
        };
        Ok(Self {
            kept: Kept::new(config.store.clone(), config.store_key(&server))?,
            eagerness: moment()?.part_of(Duration::from_secs(1)),
            server,
            guard,
            fetch,
            config,
            filled: OnceCell::new(),
            memory: Mutex::new(memory),
        })
    }

    /// Shows the token, if there is one and the request goes to the server that it is for.
    pub(crate) async fn sign(self: &Arc<Self>, head: &mut request::Parts) -> Result<()> {
        self.fill().await?;
        let url = Url::parse(&head.uri.to_string());
        let Some(url) = url.ok().filter(|url| url.origin() == self.server.origin()) else {
            return Ok(());
        };
        self.renew_in_time().await;
        let (tokens, key, nonce) = {
            let memory = self.lock();
            let tokens = memory.credentials.tokens.clone();
            (tokens, memory.proof_key.clone(), memory.nonce.clone())
        };
        let Some(tokens) = tokens else {
            return Ok(());
        };
        if let (TokenKind::Dpop, Some(key)) = (tokens.kind, key) {
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

    /// Returns a name of the signed-in user that is unique in this process.
    pub(crate) fn identity(&self) -> Option<String> {
        let memory = self.lock();
        let is_signed_in = memory.credentials.tokens.is_some();
        is_signed_in.then(|| format!("{} {}", self.server, memory.user))
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
                    match self.fly(Intent::Renew, challenge.clone()).await {
                        Ok(()) => return Ok(()),
                        // A person cannot help an authorization server that is out of order.
                        Err(error) if error.is_transient() => return Err(error),
                        Err(_) => {}
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
        let wanted = wanted(challenge.as_ref());
        let allowed = self.config.application.scopes.at_most.as_ref();
        if allowed.is_some_and(|allowed| !allowed.contains_all(&wanted)) {
            return Err(Arc::new(Error::still_not_enough(&wanted.to_string())));
        }
        if self.has_asked_for(&wanted) {
            if !self.is_current(refusal) {
                return Ok(()); // somebody else did, meanwhile
            }
            return Err(Arc::new(Error::still_not_enough(&wanted.to_string())));
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

    /// Gets a token because the application wants one now, whatever was denied before.
    pub(crate) async fn authorize(self: &Arc<Self>) -> Result<(), Arc<Error>> {
        {
            let mut memory = self.lock();
            memory.prompts.reset();
            memory.backoff = None;
        }
        self.obtain(None).await
    }

    /// Gets a token, whatever it takes.
    async fn obtain(self: &Arc<Self>, challenge: Option<Challenge>) -> Result<(), Arc<Error>> {
        self.fly(Intent::Obtain, challenge).await
    }

    pub(crate) async fn forget(&self) -> Result<()> {
        let old = {
            // Before anything that takes time: what is under way must not bring the token back.
            let mut memory = self.lock();
            memory.epoch += 1;
            let old = memory.credentials.clone();
            memory.credentials.tokens = None;
            memory.flight = None;
            memory.backoff = None;
            memory.prompts.reset();
            old
        };
        let kept = self.kept.load().await.ok().flatten();
        let forgotten = self.kept.update(|kept| kept.tokens = None).await;
        if let Err(error) = forgotten {
            // Whatever is there, nobody can read it; but a token must not stay where it was forgotten.
            tracing::warn!(%error, "removing credentials that cannot be changed");
            self.kept.remove().await?;
        }
        let old = kept.filter(|kept| kept.tokens.is_some()).unwrap_or(old);
        if old.tokens.is_some() {
            let revoking = tokio::time::timeout(REVOKED_WITHIN, self.revoke(old)).await;
            // It is forgotten here in any case, and ends by itself there.
            if !matches!(revoking, Ok(Ok(()))) {
                tracing::debug!("a token that was forgotten is not revoked");
            }
        }
        Ok(())
    }

    /// Tells whoever gave out a token that it is not needed any more.
    async fn revoke(&self, credentials: Credentials) -> Result<()> {
        let Some(kept) = &credentials.proof_key else {
            return Ok(());
        };
        let proof_key = Arc::new(ProofKey::read(kept)?);
        let setup = self.setup(Intent::Revoke, None, credentials, proof_key);
        let mut flow = Flow::new(setup);
        let mut step = flow.begin()?;
        while let Step::Send(request) = step {
            let response = self.fetch.send(request).await?;
            step = flow.response(&response, &moment()?)?;
        }
        Ok(())
    }

    /// What a flow starts from, unless a person is to be asked.
    fn setup(
        &self,
        intent: Intent,
        challenge: Option<Challenge>,
        credentials: Credentials,
        proof_key: Arc<ProofKey>,
    ) -> Setup {
        Setup {
            server: self.server.clone(),
            application: Arc::new(self.config.application.clone()),
            guard: self.guard,
            intent,
            challenge,
            credentials,
            proof_key,
            redirect_uri: None,
        }
    }

    /// Renews a token that is about to expire. If that fails, the server will say what it wants.
    async fn renew_in_time(self: &Arc<Self>) {
        let due = self.due();
        if due == Due::No || self.backing_off().is_some() {
            return;
        }
        let intent = if self.can_renew() {
            Intent::Renew
        } else if self.config.application.needs_nobody() {
            Intent::Obtain
        } else {
            return;
        };
        if due == Due::Soon {
            // It goes on by itself, and this request need not wait for it.
            drop(self.board(intent, None));
        } else if let Err(error) = self.fly(intent, None).await {
            tracing::debug!(%error, "failed to renew a token");
        }
    }

    fn due(&self) -> Due {
        let memory = self.lock();
        let tokens = memory.credentials.tokens.as_ref();
        let Some((tokens, at)) = tokens.and_then(|tokens| Some((tokens, tokens.renew_at?))) else {
            return Due::No;
        };
        let expires_at = tokens.expires_at.unwrap_or(at);
        let early = (expires_at.saturating_sub(at) as f64 * self.eagerness.as_secs_f64()) as u64;
        match Moment::seconds_now() {
            now if now >= expires_at => Due::Now,
            now if now >= at.saturating_sub(early) => Due::Soon,
            _ => Due::No,
        }
    }

    /// The error after which the authorization server is left alone, if it is.
    fn backing_off(&self) -> Option<Arc<Error>> {
        let memory = self.lock();
        let backoff = memory.backoff.as_ref();
        let backoff = backoff.filter(|backoff| Instant::now() < backoff.until)?;
        Some(backoff.error.clone())
    }

    /// Whether a flight needs no person, and is finished even if no call waits for it.
    fn is_automatic(&self, intent: Intent) -> bool {
        intent == Intent::Renew || self.config.application.needs_nobody()
    }

    /// Waits for a flight that is under way, or starts one.
    async fn fly(
        self: &Arc<Self>,
        intent: Intent,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        loop {
            if self.is_automatic(intent)
                && let Some(error) = self.backing_off()
            {
                return Err(error);
            }
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
        memory.flights += 1;
        let number = memory.flights;
        let (runtime, challenge) = (self.clone(), challenge.cloned());
        let flight: Landing = Box::pin(async move {
            let landed = runtime.attempt(intent, challenge).await;
            runtime.land(number, intent, &landed);
            landed
        });
        let landing = flight.shared();
        let under_way = landing.downgrade();
        memory.flight = under_way.map(|landing| Flight {
            number,
            intent,
            landing,
        });
        drop(memory);
        if self.is_automatic(intent) {
            // A refresh token may be used up by the request, so its successor must be taken in even if no call
            // waits. The limits of its requests bound this task.
            tokio::spawn(landing.clone());
        }
        (intent, landing)
    }

    fn land(&self, number: u64, intent: Intent, landed: &Result<(), Arc<Error>>) {
        let mut memory = self.lock();
        // After `forget` there may be another one.
        memory.flight = memory.flight.take().filter(|it| it.number != number);
        if !self.is_automatic(intent) {
            return;
        }
        let error = landed.as_ref().err().filter(|error| error.is_transient());
        let failures = memory.backoff.take().map_or(0, |backoff| backoff.failures);
        memory.backoff = error.map(|error| Backoff {
            failures: failures.saturating_add(1),
            until: Instant::now() + backoff_after(failures),
            error: error.clone(),
        });
    }

    /// Performs a flow, unless a person would be asked what they have been asked.
    async fn attempt(
        &self,
        intent: Intent,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        let wanted = wanted(challenge.as_ref());
        if !self.is_automatic(intent) {
            self.lock().prompts.check(&wanted)?;
        }
        let performed = self.perform(intent, challenge).await.map_err(Arc::new);
        if let Err(error) = &performed
            && error.is_denial()
        {
            self.lock().prompts.remember_denial(wanted, error);
        }
        performed
    }

    /// Performs a flow, and keeps what it learned.
    async fn perform(&self, intent: Intent, challenge: Option<Challenge>) -> Result<()> {
        let proof_key = self.fill().await?;
        let (before, epoch) = self.snapshot();
        if intent == Intent::Renew && self.is_renewed_elsewhere(&before).await? {
            return Ok(());
        }
        let visit = match self.is_automatic(intent) {
            false => Some(self.prepare().await?),
            true => None,
        };
        let mut flow = Flow::new(Setup {
            redirect_uri: visit.as_ref().map(|visit| visit.redirect_uri().to_owned()),
            ..self.setup(intent, challenge, before.clone(), proof_key)
        });
        let starting = Starting {
            intent,
            epoch,
            before: &before,
        };
        let performed = self.walk(&mut flow, visit, &starting).await;
        self.keep(&starting, flow.credentials()).await;
        self.lock().is_unproven = intent == Intent::Renew && performed.is_ok();
        // A refresh token that is refused may have been used up by another process, whose token is now ours.
        if performed.is_err() && intent == Intent::Renew && self.has_other_token(&before) {
            return Ok(());
        }
        performed
    }

    /// Remembers what a flow learned, here and in the store.
    async fn keep(&self, starting: &Starting<'_>, after: &Credentials) {
        let learned = Learned {
            intent: starting.intent,
            before: starting.before,
            after,
            proof_key: starting.before.proof_key.as_ref(),
        };
        let apply = |kept: &mut Credentials| {
            let memory = self.lock();
            if memory.epoch != starting.epoch {
                return learned.apply_registrations(kept);
            }
            if !memory.is_kept {
                // What the flow started from is newer than what is kept.
                kept.tokens.clone_from(&starting.before.tokens);
            }
            drop(memory);
            learned.apply(kept);
        };
        let updated = self.kept.update(apply).await;
        let (is_kept, credentials) = match updated {
            Ok(credentials) => (true, credentials),
            Err(error) => {
                // They are good as long as this program runs.
                tracing::warn!(%error, "failed to keep credentials");
                let mut credentials = self.lock().credentials.clone();
                apply(&mut credentials);
                (false, credentials)
            }
        };
        let mut memory = self.lock();
        let got =
            |credentials: &Credentials| credentials.tokens.as_ref().map(|it| it.access.clone());
        let is_renewed = starting.intent == Intent::Renew && got(&credentials) == got(after);
        let whose = if is_renewed {
            Whose::Same
        } else {
            Whose::Unknown
        };
        memory.set(credentials, whose);
        memory.is_kept = is_kept;
        if memory.epoch != starting.epoch {
            memory.credentials.tokens = None;
        }
    }

    /// Waits for other processes that renew the token, and takes over what they got. Afterwards they wait for us.
    async fn is_renewed_elsewhere(&self, before: &Credentials) -> Result<bool> {
        match self.kept.take_turn(before.tokens.as_ref()).await {
            Ok(Turn::Changed(kept)) if self.lock().is_kept => {
                let is_signed_in = kept.tokens.is_some();
                let mut memory = self.lock();
                memory.set(*kept, Whose::Unknown);
                memory.is_unproven = false;
                drop(memory);
                match is_signed_in {
                    true => Ok(true),
                    false => Err(Error::not_offered(
                        "a token that could be renewed: it was forgotten by another process",
                    )),
                }
            }
            Ok(Turn::Changed(_) | Turn::Ours) => Ok(false),
            Err(error) => {
                tracing::warn!(%error, "renewing a token although the store fails");
                Ok(false)
            }
        }
    }

    fn snapshot(&self) -> (Credentials, u64) {
        let memory = self.lock();
        (memory.credentials.clone(), memory.epoch)
    }

    fn has_other_token(&self, before: &Credentials) -> bool {
        let memory = self.lock();
        let tokens = memory.credentials.tokens.as_ref();
        let access = |tokens: &Tokens| tokens.access.clone();
        tokens.is_some() && tokens.map(access) != before.tokens.as_ref().map(access)
    }

    async fn walk(
        &self,
        flow: &mut Flow,
        mut visit: Option<Box<dyn Visit>>,
        starting: &Starting<'_>,
    ) -> Result<()> {
        let mut step = flow.begin()?;
        loop {
            step = match step {
                Step::Send(request) => {
                    let response = self.fetch.send(request).await?;
                    flow.response(&response, &moment()?)?
                }
                Step::Open(url) => {
                    let Some(visit) = visit.take() else {
                        return Err(Error::misuse("a person cannot be asked twice in one flow"));
                    };
                    // Whoever stops waiting now need not register again.
                    self.keep(starting, flow.credentials()).await;
                    self.lock().prompts.count();
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
    async fn fill(&self) -> Result<Arc<ProofKey>> {
        let filling = self.filled.get_or_try_init(|| async {
            let epoch = self.lock().epoch;
            let mut credentials = self.kept.load().await?.unwrap_or_default();
            if credentials.proof_key.is_none() {
                credentials.proof_key = Some(ProofKey::generate()?);
            }
            let mut memory = self.lock();
            if memory.epoch != epoch {
                credentials.tokens = None;
            }
            memory.set(credentials, Whose::Unknown);
            Ok(())
        });
        filling.await?;
        let key = self.lock().proof_key.clone();
        key.ok_or_else(|| Error::misuse("the key that was kept cannot be read"))
    }

    /// Whether the request that was refused showed what would be shown now.
    fn is_current(&self, refusal: &Refusal) -> bool {
        let shown = self.tokens().map(|tokens| tokens.header());
        refusal.sent.as_ref().map(HeaderValue::as_bytes) == shown.as_ref().map(|it| it.as_bytes())
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

impl Memory {
    /// Takes over credentials, with the key that their tokens are bound to.
    fn set(&mut self, mut credentials: Credentials, whose: Whose) {
        static USERS: AtomicU64 = AtomicU64::new(0);
        let access = |credentials: &Credentials| Some(credentials.tokens.as_ref()?.access.clone());
        if whose == Whose::Unknown && access(&credentials) != access(&self.credentials) {
            self.user = USERS.fetch_add(1, Ordering::Relaxed);
        }
        if credentials.proof_key.is_none() {
            credentials.proof_key = self.credentials.proof_key.take();
        } else if credentials.proof_key != self.credentials.proof_key {
            let kept = credentials.proof_key.as_ref();
            self.proof_key = kept.and_then(|kept| ProofKey::read(kept).ok().map(Arc::new));
        }
        self.credentials = credentials;
    }
}

/// Whether new tokens belong to the same user as the old ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// They were renewed.
    Same,
    /// They come from a new sign-in, or from another process.
    Unknown,
}

/// What a flow starts from.
struct Starting<'a> {
    intent: Intent,
    epoch: u64,
    before: &'a Credentials,
}

/// The scopes that a server asks for.
fn wanted(challenge: Option<&Challenge>) -> Scopes {
    Scopes::parse(challenge.and_then(Challenge::scope).unwrap_or_default())
}

/// How long an authorization server is left alone after it failed so many times before: twice as long each time,
/// up to a minute.
fn backoff_after(failures: u32) -> Duration {
    let most = Duration::from_secs(60);
    (Duration::from_secs(1) * 2_u32.saturating_pow(failures.min(6))).min(most)
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
    let failed = |error: std::io::Error| {
        failed(
            "failed to read randomness from the operating system",
            error.into(),
        )
    };
    Moment::now().map_err(failed)
}

fn failed(what: &'static str, source: AppError) -> Error {
    Error::Application { what, source }
}

/// How long the authorization server may take to end a token that was forgotten.
const REVOKED_WITHIN: Duration = Duration::from_secs(10);
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

//! The [`OAuthRuntime`]: adds tokens to requests, refreshes them, and reauthorizes on challenges. Used by `OAuth`.
//!
//! All calls that need a token share one run of a [`Flow`]; there is at most one at a time.
//!
//! ```text
//! sign ──▶ refresh due? ───┐                        ┌─▶ no user involved: spawned, runs to completion
//! 401 / 403 ──▶ answer ────┴─▶ join_or_start_flow ──┴─▶ user involved: dropped with the last waiting call, or spawned
//! ```

mod pending_authorization;
pub use pending_authorization::PendingAuthorization;

mod pick_challenge;
use pick_challenge::pick_challenge;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::{Challenge, Refusal, RefusalReason};
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, request, response};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use super::address_policy::AddressPolicy;
use super::credentials::{Credentials, TokenKind, Tokens};
use super::credentials_diff::CredentialsDiff;
use super::dpop::{ProofKey, ProofTarget};
use super::fetch::Fetch;
use super::flow::{DPOP_NONCE, Flow, FlowSetup, FlowStep, Intent};
use super::oauth::OAuthConfig;
use super::prompt_limiter::PromptLimiter;
use super::scopes::Scopes;
use super::stored_credentials::{RefreshTurn, StoredCredentials};
use super::time_and_randomness::TimeAndRandomness;
use super::user_agent::{AppError, AuthorizationPrompt};
use super::{Error, Result};
use crate::sync::Mutex;

/// The tokens for one server.
pub(crate) struct OAuthRuntime {
    server: Url,
    address_policy: AddressPolicy,
    fetch: Fetch,
    config: OAuthConfig,
    stored: StoredCredentials,
    /// A random fraction of the head start (0 to 1, in seconds) by which this client refreshes even earlier, so that
    /// processes that share a token do not all refresh it in the same second.
    refresh_jitter: Duration,
    /// Set once `state` was loaded from the store.
    loaded: OnceCell<()>,
    state: Mutex<RuntimeState>,
}

struct RuntimeState {
    credentials: Credentials,
    /// Decoded from the credentials.
    proof_key: Option<Arc<ProofKey>>,
    /// Whether the store has the credentials in memory; `false` after a failed write.
    is_persisted: bool,
    /// Incremented by `forget`. A flow of an earlier epoch does not store its token.
    epoch: u64,
    /// The last `DPoP-Nonce` of the server.
    nonce: Option<HeaderValue>,
    /// Identifies the signed-in user within this process. A refresh keeps it.
    user: u64,
    /// Whether the token came from a refresh and no request succeeded since.
    is_unconfirmed_refresh: bool,
    running_flow: Option<SharedFlow>,
    flow_count: u64,
    prompts: PromptLimiter,
    backoff: Option<FlowBackoff>,
}

/// The flow in progress.
struct SharedFlow {
    number: u64,
    intent: Intent,
    future: WeakShared<FlowFuture>,
}

type FlowFuture = BoxFuture<'static, Result<(), Arc<Error>>>;

/// The time in which no automatic flow starts, because the authorization server failed.
struct FlowBackoff {
    failures: u32,
    until: Instant,
    error: Arc<Error>,
}

/// Whether a token is due for a refresh.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefreshDue {
    No,
    /// It is due, and still valid.
    Soon,
    /// It has expired.
    Now,
}

impl OAuthRuntime {
    pub(crate) fn new(
        server: Url,
        address_policy: AddressPolicy,
        fetch: Fetch,
        config: OAuthConfig,
    ) -> Result<Self> {
        let state = RuntimeState {
            credentials: Credentials::default(),
            proof_key: None,
            is_persisted: true,
            epoch: 0,
            nonce: None,
            user: 0,
            is_unconfirmed_refresh: false,
            running_flow: None,
            flow_count: 0,
            prompts: PromptLimiter::new(config.max_prompts, config.prompts_within),
            backoff: None,
        };
        Ok(Self {
            stored: StoredCredentials::new(config.store.clone(), config.store_key(&server))?,
            refresh_jitter: time_and_randomness()?.random_fraction_of(Duration::from_secs(1)),
            server,
            address_policy,
            fetch,
            config,
            loaded: OnceCell::new(),
            state: Mutex::new(state),
        })
    }

    /// Adds the token to a request, if there is one and the request goes to the server's origin.
    pub(crate) async fn sign(self: &Arc<Self>, head: &mut request::Parts) -> Result<()> {
        self.load_credentials().await?;
        // Before the URL is parsed, which would be the greatest cost of a request to a server without sign-in. There is
        // nothing to refresh either.
        if self.state.lock().credentials.tokens.is_none() {
            return Ok(());
        }
        let url = Url::parse(&head.uri.to_string());
        let Some(url) = url.ok().filter(|url| url.origin() == self.server.origin()) else {
            return Ok(());
        };
        self.config.check_encryption(&self.server)?;
        self.refresh_if_due().await;
        let (tokens, key, nonce) = {
            let state = self.state.lock();
            let tokens = state.credentials.tokens.clone();
            (tokens, state.proof_key.clone(), state.nonce.clone())
        };
        let Some(tokens) = tokens else {
            return Ok(());
        };
        if let (TokenKind::Dpop, Some(key)) = (tokens.kind, key) {
            let target = ProofTarget {
                method: &head.method,
                url: &url,
                token: Some(&tokens.access),
                nonce: nonce.as_ref().and_then(|nonce| nonce.to_str().ok()),
            };
            let proof = key.prove(&target, &time_and_randomness()?)?;
            head.headers.insert(DPOP, header_value(&proof)?);
        }
        let value = header_value(&tokens.header())?;
        head.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Returns a name for the signed-in user, unique within this process.
    pub(crate) fn identity(&self) -> Option<String> {
        let state = self.state.lock();
        let is_signed_in = state.credentials.tokens.is_some();
        is_signed_in.then(|| format!("{} {}", self.server, state.user))
    }

    /// Stores the `DPoP-Nonce` of a response, and whether the token was accepted.
    pub(crate) fn observe_response(&self, head: &response::Parts) {
        let mut state = self.state.lock();
        if let Some(nonce) = head.headers.get(DPOP_NONCE) {
            state.nonce = Some(nonce.clone());
        }
        state.is_unconfirmed_refresh &= !head.status.is_success();
    }

    /// Obtains a token that answers the challenges of a refused request.
    pub(crate) async fn answer(self: &Arc<Self>, refusal: &Refusal) -> Result<(), Arc<Error>> {
        let challenge = pick_challenge(&refusal.challenges);
        match refusal.reason {
            RefusalReason::Nonce => Ok(()), // `observe_response` stored the nonce
            RefusalReason::InsufficientScope => self.step_up(refusal, challenge).await,
            // Another call replaced the token meanwhile.
            _ if !self.is_current(refusal) => Ok(()),
            _ => {
                // If the server refuses a token right after its refresh, refreshing again would loop.
                let is_unconfirmed_refresh = self.state.lock().is_unconfirmed_refresh;
                if self.can_refresh() && !is_unconfirmed_refresh {
                    match self
                        .join_or_start_flow(Intent::Refresh, challenge.clone())
                        .await
                    {
                        Ok(()) => return Ok(()),
                        // Do not prompt the user because the authorization server is down.
                        Err(error) if error.is_transient() => return Err(error),
                        Err(_) => {}
                    }
                }
                self.obtain(challenge).await
            }
        }
    }

    /// Requests the scopes of a scope challenge, unless they were already requested: the result would be the same.
    async fn step_up(
        self: &Arc<Self>,
        refusal: &Refusal,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        let wanted = challenged_scopes(challenge.as_ref());
        let allowed = self.config.application.scopes.allowed.as_ref();
        if allowed.is_some_and(|allowed| !allowed.contains_all(&wanted)) {
            return Err(Arc::new(Error::insufficient_scope(&wanted.to_string())));
        }
        if self.has_requested(&wanted) {
            if !self.is_current(refusal) {
                return Ok(()); // another call got them meanwhile
            }
            return Err(Arc::new(Error::insufficient_scope(&wanted.to_string())));
        }
        self.obtain(challenge.clone()).await?;
        if self.has_requested(&wanted) {
            return Ok(());
        }
        // The flow was another call's, for other scopes.
        self.obtain(challenge).await
    }

    fn has_requested(&self, scopes: &Scopes) -> bool {
        self.tokens()
            .is_some_and(|tokens| tokens.requested.contains_all(scopes))
    }

    /// Obtains a token, ignoring the prompt limit, earlier denials and the backoff.
    pub(crate) async fn authorize(self: &Arc<Self>) -> Result<(), Arc<Error>> {
        {
            let mut state = self.state.lock();
            state.prompts.reset();
            state.backoff = None;
        }
        self.obtain(None).await
    }

    /// Obtains a token by the configured grant.
    async fn obtain(self: &Arc<Self>, challenge: Option<Challenge>) -> Result<(), Arc<Error>> {
        self.join_or_start_flow(Intent::Obtain, challenge).await
    }

    pub(crate) async fn forget(&self) -> Result<()> {
        let old = {
            // Before the first `.await`, so that a flow in progress cannot restore the token.
            let mut state = self.state.lock();
            state.epoch += 1;
            let old = state.credentials.clone();
            state.credentials.tokens = None;
            state.running_flow = None;
            state.backoff = None;
            state.prompts.reset();
            old
        };
        let stored = self.stored.load().await.ok().flatten();
        let forgotten = self.stored.update(|stored| stored.tokens = None).await;
        if let Err(error) = forgotten {
            // The stored credentials are unreadable, but may still contain the token.
            tracing::warn!(%error, "removing stored credentials that cannot be updated");
            self.stored.remove().await?;
        }
        let old = stored
            .filter(|stored| stored.tokens.is_some())
            .unwrap_or(old);
        if old.tokens.is_some() {
            let revocation = tokio::time::timeout(REVOCATION_TIMEOUT, self.revoke(old)).await;
            // Best effort: the token is already removed here, and expires at the server.
            if !matches!(revocation, Ok(Ok(()))) {
                tracing::debug!("failed to revoke a removed token");
            }
        }
        Ok(())
    }

    /// Revokes the token at its issuer.
    async fn revoke(&self, credentials: Credentials) -> Result<()> {
        let Some(stored) = &credentials.proof_key else {
            return Ok(());
        };
        let proof_key = Arc::new(ProofKey::read(stored)?);
        let setup = self.setup(Intent::Revoke, None, credentials, proof_key);
        let mut flow = Flow::new(setup);
        let mut step = flow.begin()?;
        while let FlowStep::Send(request) = step {
            let response = self.fetch.send(request).await?;
            step = flow.handle_response(&response, &time_and_randomness()?)?;
        }
        Ok(())
    }

    /// Returns the input of a flow without a user.
    fn setup(
        &self,
        intent: Intent,
        challenge: Option<Challenge>,
        credentials: Credentials,
        proof_key: Arc<ProofKey>,
    ) -> FlowSetup {
        FlowSetup {
            server: self.server.clone(),
            application: Arc::new(self.config.application.clone()),
            address_policy: self.address_policy,
            intent,
            challenge,
            credentials,
            proof_key,
            redirect_uri: None,
        }
    }

    /// Refreshes a token that is due. On failure the request is sent anyway, and the server's challenge decides.
    async fn refresh_if_due(self: &Arc<Self>) {
        let due = self.refresh_due();
        if due == RefreshDue::No || self.backoff_error().is_some() {
            return;
        }
        let intent = if self.can_refresh() {
            Intent::Refresh
        } else if self.config.application.is_unattended() {
            Intent::Obtain
        } else {
            return;
        };
        if due == RefreshDue::Soon {
            // The flow is spawned; this request does not wait for it.
            drop(self.running_or_new_flow(intent, None));
        } else if let Err(error) = self.join_or_start_flow(intent, None).await {
            tracing::debug!(%error, "failed to refresh a token");
        }
    }

    fn refresh_due(&self) -> RefreshDue {
        let state = self.state.lock();
        let tokens = state.credentials.tokens.as_ref();
        let Some((tokens, at)) = tokens.and_then(|tokens| Some((tokens, tokens.renew_at?))) else {
            return RefreshDue::No;
        };
        let expires_at = tokens.expires_at.unwrap_or(at);
        let early =
            (expires_at.saturating_sub(at) as f64 * self.refresh_jitter.as_secs_f64()) as u64;
        match TimeAndRandomness::seconds_now() {
            now if now >= expires_at => RefreshDue::Now,
            now if now >= at.saturating_sub(early) => RefreshDue::Soon,
            _ => RefreshDue::No,
        }
    }

    /// Returns the last error while automatic flows back off.
    fn backoff_error(&self) -> Option<Arc<Error>> {
        let state = self.state.lock();
        let backoff = state.backoff.as_ref();
        let backoff = backoff.filter(|backoff| Instant::now() < backoff.until)?;
        Some(backoff.error.clone())
    }

    /// Returns whether a flow needs no user; it then runs to completion even if no call waits for it.
    fn is_automatic(&self, intent: Intent) -> bool {
        intent == Intent::Refresh || self.config.application.is_unattended()
    }

    /// Joins the flow in progress, or starts one, and waits for its result.
    async fn join_or_start_flow(
        self: &Arc<Self>,
        intent: Intent,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        loop {
            if self.is_automatic(intent)
                && let Some(error) = self.backoff_error()
            {
                return Err(error);
            }
            match self.running_or_new_flow(intent, challenge.as_ref()) {
                // The result counts even if another call started it: a second attempt would fail alike.
                (own, flow) if own == intent => return flow.await,
                // A flow with another intent. It may satisfy this call too; the next round decides.
                (_, flow) => drop(flow.await),
            }
        }
    }

    /// Returns the flow in progress, or a new one.
    fn running_or_new_flow(
        self: &Arc<Self>,
        intent: Intent,
        challenge: Option<&Challenge>,
    ) -> (Intent, Shared<FlowFuture>) {
        let mut state = self.state.lock();
        let running = state.running_flow.as_ref();
        if let Some((intent, flow)) =
            running.and_then(|running| Some((running.intent, running.future.upgrade()?)))
        {
            return (intent, flow);
        }
        state.flow_count += 1;
        let number = state.flow_count;
        let (runtime, challenge) = (self.clone(), challenge.cloned());
        let future: FlowFuture = Box::pin(async move {
            let result = runtime.run_if_prompt_allowed(intent, challenge).await;
            runtime.finish_flow(number, intent, &result);
            result
        });
        let flow = future.shared();
        state.running_flow = flow.downgrade().map(|future| SharedFlow {
            number,
            intent,
            future,
        });
        drop(state);
        if self.is_automatic(intent) || self.config.outlives_calls {
            // A refresh may consume the refresh token, so the response must be stored even if no call waits. The timeouts
            // of the requests and of the prompt bound this task.
            tokio::spawn(flow.clone());
        }
        (intent, flow)
    }

    fn finish_flow(&self, number: u64, intent: Intent, result: &Result<(), Arc<Error>>) {
        let mut state = self.state.lock();
        // After `forget`, `state.running_flow` may already be a newer flow.
        state.running_flow = state.running_flow.take().filter(|it| it.number != number);
        if !self.is_automatic(intent) {
            return;
        }
        let error = result.as_ref().err().filter(|error| error.is_transient());
        let failures = state.backoff.take().map_or(0, |backoff| backoff.failures);
        state.backoff = error.map(|error| FlowBackoff {
            failures: failures.saturating_add(1),
            until: Instant::now() + backoff_after(failures),
            error: error.clone(),
        });
    }

    /// Runs a flow, unless it would prompt the user beyond the limit or for denied scopes.
    async fn run_if_prompt_allowed(
        &self,
        intent: Intent,
        challenge: Option<Challenge>,
    ) -> Result<(), Arc<Error>> {
        let wanted = challenged_scopes(challenge.as_ref());
        if !self.is_automatic(intent) {
            self.state.lock().prompts.check(&wanted)?;
        }
        let result = self
            .run_and_store(intent, challenge)
            .await
            .map_err(Arc::new);
        if let Err(error) = &result
            && error.is_denial()
        {
            self.state.lock().prompts.remember_denial(wanted, error);
        }
        result
    }

    /// Runs a flow and stores its result.
    async fn run_and_store(&self, intent: Intent, challenge: Option<Challenge>) -> Result<()> {
        self.config.check_encryption(&self.server)?;
        let proof_key = self.proof_key().await?;
        let (before, epoch) = self.snapshot();
        if intent == Intent::Refresh && self.is_refreshed_elsewhere(&before).await? {
            return Ok(());
        }
        let prompt = match self.is_automatic(intent) {
            false => Some(self.prepare_prompt().await?),
            true => None,
        };
        let mut flow = Flow::new(FlowSetup {
            redirect_uri: prompt
                .as_ref()
                .map(|prompt| prompt.redirect_uri().to_owned()),
            ..self.setup(intent, challenge, before.clone(), proof_key)
        });
        let start = FlowStart {
            intent,
            epoch,
            before: &before,
        };
        let result = self.run_flow(&mut flow, prompt, &start).await;
        self.store_result(&start, flow.credentials()).await;
        self.state.lock().is_unconfirmed_refresh = intent == Intent::Refresh && result.is_ok();
        // The refresh token may have been consumed by another process, whose new token `store_result` has just loaded.
        if result.is_err() && intent == Intent::Refresh && self.has_other_token(&before) {
            return Ok(());
        }
        result
    }

    /// Merges the result of a flow into `state` and the store.
    async fn store_result(&self, start: &FlowStart<'_>, after: &Credentials) {
        let diff = CredentialsDiff {
            intent: start.intent,
            before: start.before,
            after,
            proof_key: start.before.proof_key.as_ref(),
        };
        let apply = |stored: &mut Credentials| {
            let state = self.state.lock();
            if state.epoch != start.epoch {
                return diff.apply_registrations(stored);
            }
            if !state.is_persisted {
                // A write failed earlier: the flow started from newer tokens than the stored ones.
                stored.tokens.clone_from(&start.before.tokens);
            }
            drop(state);
            diff.apply(stored);
        };
        let updated = self.stored.update(apply).await;
        let (is_persisted, credentials) = match updated {
            Ok(credentials) => (true, credentials),
            Err(error) => {
                // They stay usable until the program ends.
                tracing::warn!(%error, "failed to store credentials");
                let mut credentials = self.state.lock().credentials.clone();
                apply(&mut credentials);
                (false, credentials)
            }
        };
        let mut state = self.state.lock();
        let access =
            |credentials: &Credentials| credentials.tokens.as_ref().map(|it| it.access.clone());
        let is_refreshed = start.intent == Intent::Refresh && access(&credentials) == access(after);
        let owner = if is_refreshed {
            TokenOwner::Same
        } else {
            TokenOwner::Unknown
        };
        state.set_credentials(credentials, owner);
        state.is_persisted = is_persisted;
        if state.epoch != start.epoch {
            state.credentials.tokens = None;
        }
    }

    /// Waits for a refresh in another process and adopts its token. Otherwise claims the refresh for this client.
    async fn is_refreshed_elsewhere(&self, before: &Credentials) -> Result<bool> {
        match self.stored.claim_refresh(before.tokens.as_ref()).await {
            Ok(RefreshTurn::Changed(stored)) if self.state.lock().is_persisted => {
                let is_signed_in = stored.tokens.is_some();
                let mut state = self.state.lock();
                state.set_credentials(*stored, TokenOwner::Unknown);
                state.is_unconfirmed_refresh = false;
                drop(state);
                match is_signed_in {
                    true => Ok(true),
                    false => Err(Error::unsupported(
                        "no token to refresh: another process removed it",
                    )),
                }
            }
            Ok(RefreshTurn::Changed(_) | RefreshTurn::Ours) => Ok(false),
            Err(error) => {
                tracing::warn!(%error, "refreshing a token although the store failed");
                Ok(false)
            }
        }
    }

    fn snapshot(&self) -> (Credentials, u64) {
        let state = self.state.lock();
        (state.credentials.clone(), state.epoch)
    }

    fn has_other_token(&self, before: &Credentials) -> bool {
        let state = self.state.lock();
        let tokens = state.credentials.tokens.as_ref();
        let access = |tokens: &Tokens| tokens.access.clone();
        tokens.is_some() && tokens.map(access) != before.tokens.as_ref().map(access)
    }

    async fn run_flow(
        &self,
        flow: &mut Flow,
        mut prompt: Option<Box<dyn AuthorizationPrompt>>,
        start: &FlowStart<'_>,
    ) -> Result<()> {
        let mut step = flow.begin()?;
        loop {
            step = match step {
                FlowStep::Send(request) => {
                    let response = self.fetch.send(request).await?;
                    flow.handle_response(&response, &time_and_randomness()?)?
                }
                FlowStep::Open(url) => {
                    let Some(prompt) = prompt.take() else {
                        return Err(Error::misuse("a flow can only prompt the user once"));
                    };
                    // Stored now, so that a dropped call does not lose the registration.
                    self.store_result(start, flow.credentials()).await;
                    self.state.lock().prompts.count();
                    let after = self.config.prompt_timeout;
                    let redirect = tokio::time::timeout(after, prompt.open(url.into())).await;
                    let redirect = redirect.map_err(|_| Error::RedirectTimeout { after })?;
                    let redirect = redirect
                        .map_err(|error| application_error("the user agent failed", error))?;
                    flow.handle_redirect(&redirect, &time_and_randomness()?)?
                }
                FlowStep::Assert(issuer) => {
                    let Some(assertions) = &self.config.assertions else {
                        return Err(Error::misuse("no client assertion is configured"));
                    };
                    let failed =
                        |error| application_error("failed to get the client assertion", error);
                    let assertion = assertions(issuer).await.map_err(failed)?;
                    flow.handle_assertion(&assertion, &time_and_randomness()?)?
                }
                FlowStep::Done => return Ok(()),
            };
        }
    }

    async fn prepare_prompt(&self) -> Result<Box<dyn AuthorizationPrompt>> {
        let Some(user_agent) = &self.config.user_agent else {
            return Err(Error::misuse(
                "this grant requires the user, and no user agent is set",
            ));
        };
        let prepared = user_agent.prepare().await;
        prepared.map_err(|error| application_error("failed to prepare the user agent", error))
    }

    /// Loads the credentials once.
    async fn load_credentials(&self) -> Result<()> {
        let loading = self.loaded.get_or_try_init(|| async {
            let epoch = self.state.lock().epoch;
            let mut credentials = self.stored.load().await?.unwrap_or_default();
            let mut state = self.state.lock();
            if state.epoch != epoch {
                credentials.tokens = None;
            }
            state.set_credentials(credentials, TokenOwner::Unknown);
            Ok(())
        });
        loading.await.map(|_| ())
    }

    /// Returns the DPoP key, and generates one if none is stored: by then a server wants a token, which most do not.
    async fn proof_key(&self) -> Result<Arc<ProofKey>> {
        self.load_credentials().await?;
        if self.state.lock().credentials.proof_key.is_none() {
            let generated = ProofKey::generate()?;
            let mut state = self.state.lock();
            let mut credentials = state.credentials.clone();
            credentials.proof_key.get_or_insert(generated);
            state.set_credentials(credentials, TokenOwner::Same);
        }
        let key = self.state.lock().proof_key.clone();
        key.ok_or_else(|| Error::misuse("the stored DPoP key cannot be read"))
    }

    /// Returns whether the refused request was sent with the current token.
    fn is_current(&self, refusal: &Refusal) -> bool {
        let current = self.tokens().map(|tokens| tokens.header());
        refusal.sent.as_ref().map(HeaderValue::as_bytes) == current.as_ref().map(|it| it.as_bytes())
    }

    fn can_refresh(&self) -> bool {
        self.tokens().is_some_and(|tokens| tokens.refresh.is_some())
    }

    fn tokens(&self) -> Option<Tokens> {
        self.state.lock().credentials.tokens.clone()
    }
}

impl RuntimeState {
    /// Replaces the credentials, and decodes their DPoP key.
    fn set_credentials(&mut self, mut credentials: Credentials, owner: TokenOwner) {
        static USERS: AtomicU64 = AtomicU64::new(0);
        let access = |credentials: &Credentials| Some(credentials.tokens.as_ref()?.access.clone());
        if owner == TokenOwner::Unknown && access(&credentials) != access(&self.credentials) {
            self.user = USERS.fetch_add(1, Ordering::Relaxed);
        }
        if credentials.proof_key.is_none() {
            credentials.proof_key = self.credentials.proof_key.take();
        } else if credentials.proof_key != self.credentials.proof_key {
            let stored = credentials.proof_key.as_ref();
            self.proof_key = stored.and_then(|stored| ProofKey::read(stored).ok().map(Arc::new));
        }
        self.credentials = credentials;
    }
}

/// Whether new tokens belong to the same user as the old ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenOwner {
    /// They come from a refresh.
    Same,
    /// They come from a new sign-in, or from another process.
    Unknown,
}

/// The state in which a flow started.
struct FlowStart<'a> {
    intent: Intent,
    epoch: u64,
    before: &'a Credentials,
}

/// Returns the scopes of a challenge.
fn challenged_scopes(challenge: Option<&Challenge>) -> Scopes {
    Scopes::parse(challenge.and_then(Challenge::scope).unwrap_or_default())
}

/// Returns the backoff after this many earlier failures: one second, doubled each time, at most a minute.
fn backoff_after(failures: u32) -> Duration {
    let max = Duration::from_secs(60);
    (Duration::from_secs(1) * 2_u32.saturating_pow(failures.min(6))).min(max)
}

fn header_value(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        Error::protocol("the token contains characters that are invalid in a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn time_and_randomness() -> Result<TimeAndRandomness> {
    let failed = |error: std::io::Error| {
        application_error(
            "failed to read randomness from the operating system",
            error.into(),
        )
    };
    TimeAndRandomness::now().map_err(failed)
}

fn application_error(what: &'static str, source: AppError) -> Error {
    Error::Application { what, source }
}

/// The time limit for revoking a removed token.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(10);
const DPOP: HeaderName = HeaderName::from_static("dpop");

//! Authorization-code flows that are completed in another process: [`PendingAuthorization`], for web applications.

use std::sync::Arc;

use bowline::http::client::Challenge;
use serde::{Deserialize, Serialize};

use super::{
    Error, Flow, FlowSetup, FlowStart, FlowStep, Intent, OAuthRuntime, Result, pick_challenge,
    time_and_randomness,
};
use crate::client::Secret;
use crate::client::flow::SavedFlow;

/// An authorization request that waits for its redirect; returned by [`OAuth::begin`](crate::client::OAuth::begin).
///
/// It can be serialized until the redirect arrives. Bind it to the user's browser, for example through a cookie:
/// otherwise an attacker can complete the flow with a code of their own. `Debug` hides secrets; `Serialize` includes
/// them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "redirect the user to its `url`"]
pub struct PendingAuthorization {
    /// A secret, because it contains the `state`.
    url: Secret,
    flow: SavedFlow,
}

impl PendingAuthorization {
    /// Returns the authorization URL to redirect the user to.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.expose()
    }

    /// Returns the `state` parameter, which the redirect repeats: use it to look up this value.
    #[must_use]
    pub fn state(&self) -> &str {
        self.flow.state()
    }
}

impl OAuthRuntime {
    /// Runs a flow up to the authorization URL.
    pub(crate) async fn begin(
        &self,
        redirect_uri: &str,
        challenges: &[Challenge],
    ) -> Result<PendingAuthorization> {
        if self.config.application.is_unattended() {
            return Err(Error::misuse("this grant does not involve a user"));
        }
        self.config.check_encryption(&self.server)?;
        let proof_key = self.proof_key().await?;
        let (before, epoch) = self.snapshot();
        let challenge = pick_challenge(challenges);
        let mut flow = Flow::new(FlowSetup {
            redirect_uri: Some(redirect_uri.to_owned()),
            ..self.setup(Intent::Obtain, challenge, before.clone(), proof_key)
        });
        let mut step = flow.begin()?;
        let url = loop {
            step = match step {
                FlowStep::Send(request) => {
                    let response = self.fetch.send(request).await?;
                    flow.handle_response(&response, &time_and_randomness()?)?
                }
                FlowStep::Open(url) => break url,
                FlowStep::Assert(_) | FlowStep::Done => {
                    return Err(Error::misuse("this grant does not involve a user"));
                }
            };
        };
        let start = FlowStart {
            intent: Intent::Obtain,
            epoch,
            before: &before,
        };
        self.store_result(&start, flow.credentials()).await;
        Ok(PendingAuthorization {
            url: Secret::new(url),
            flow: flow.save()?,
        })
    }

    /// Completes a flow with the URL of its redirect.
    pub(crate) async fn complete(
        &self,
        pending: PendingAuthorization,
        redirect_url: &str,
    ) -> Result<()> {
        self.config.check_encryption(&self.server)?;
        let proof_key = self.proof_key().await?;
        let (before, epoch) = self.snapshot();
        let setup = self.setup(Intent::Obtain, None, before.clone(), Arc::clone(&proof_key));
        let mut flow = Flow::resume(setup, pending.flow);
        let mut step = flow.handle_redirect(redirect_url, &time_and_randomness()?)?;
        while let FlowStep::Send(request) = step {
            let response = self.fetch.send(request).await?;
            step = flow.handle_response(&response, &time_and_randomness()?)?;
        }
        let start = FlowStart {
            intent: Intent::Obtain,
            epoch,
            before: &before,
        };
        self.store_result(&start, flow.credentials()).await;
        self.state.lock().prompts.reset();
        Ok(())
    }
}

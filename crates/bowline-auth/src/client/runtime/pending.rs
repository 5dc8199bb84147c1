//! Flows whose person comes back to another process, or much later: what web applications need.

use std::sync::Arc;

use bowline::http::client::Challenge;
use serde::{Deserialize, Serialize};

use super::{Error, Flow, Intent, Result, Runtime, Setup, Starting, Step, moment, pick};
use crate::client::Secret;
use crate::client::flow::SavedFlow;

/// A person who was sent to an authorization server, as [`OAuth::begin`](crate::client::OAuth::begin) returns it.
///
/// It can be kept, as JSON for example, until the person comes back: where only that person's browser leads to it and nowhere
/// else, because it is secret and whoever comes back must be the one who was sent. `Debug` shows no secrets;
/// `Serialize` writes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[must_use = "the person has to be sent to its `url`"]
pub struct PendingAuthorization {
    /// Contains the state.
    url: Secret,
    flow: SavedFlow,
}

impl PendingAuthorization {
    /// Returns the address that the person is to be sent to.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.expose()
    }

    /// Returns the `state` parameter that comes back with the person: a key to find this value by.
    #[must_use]
    pub fn state(&self) -> &str {
        self.flow.state()
    }
}

impl Runtime {
    /// Goes as far as a person is needed.
    pub(crate) async fn begin(
        &self,
        redirect_uri: &str,
        challenges: &[Challenge],
    ) -> Result<PendingAuthorization> {
        if self.config.application.needs_nobody() {
            return Err(Error::misuse("no person is asked by this grant"));
        }
        let proof_key = self.fill().await?;
        let (before, epoch) = self.snapshot();
        let challenge = pick(challenges);
        let mut flow = Flow::new(Setup {
            redirect_uri: Some(redirect_uri.to_owned()),
            ..self.setup(Intent::Obtain, challenge, before.clone(), proof_key)
        });
        let mut step = flow.begin()?;
        let url = loop {
            step = match step {
                Step::Send(request) => {
                    let response = self.fetch.send(request).await?;
                    flow.response(&response, &moment()?)?
                }
                Step::Open(url) => break url,
                Step::Assert(_) | Step::Done => {
                    return Err(Error::misuse("no person is asked by this grant"));
                }
            };
        };
        let starting = Starting {
            intent: Intent::Obtain,
            epoch,
            before: &before,
        };
        self.keep(&starting, flow.credentials()).await;
        Ok(PendingAuthorization {
            url: Secret::new(url),
            flow: flow.save()?,
        })
    }

    /// Goes on when the person has come back.
    pub(crate) async fn complete(&self, pending: PendingAuthorization, came: &str) -> Result<()> {
        let proof_key = self.fill().await?;
        let (before, epoch) = self.snapshot();
        let setup = self.setup(Intent::Obtain, None, before.clone(), Arc::clone(&proof_key));
        let mut flow = Flow::resume(setup, pending.flow);
        let mut step = flow.redirected(came, &moment()?)?;
        while let Step::Send(request) = step {
            let response = self.fetch.send(request).await?;
            step = flow.response(&response, &moment()?)?;
        }
        let starting = Starting {
            intent: Intent::Obtain,
            epoch,
            before: &before,
        };
        self.keep(&starting, flow.credentials()).await;
        self.lock().prompts.reset();
        Ok(())
    }
}
